-- Open hooks of the workspace $1 in the order of a list, at most $2, with their runs and the deliveries to them among the first
-- messages of each run: $3 are read, and all but the last of them count. A delivery is stored as text that begins with its token.
SELECT {run}, h.token, h.visit, h.opened, d.deliveries, d.read
FROM (
    SELECT h.token, h.visit, h.opened, h.run FROM hooks h WHERE h.workspace = $1 AND {stretch} ORDER BY {order} LIMIT $2
) h
JOIN runs r ON r.num = h.run
CROSS JOIN LATERAL (
    SELECT count(*) AS read,
        count(*) FILTER (WHERE m.place < $3 AND starts_with(m.message, '{{"delivery":{{"token":' || to_json(h.token)::text)) AS deliveries
    FROM (
        SELECT i.message, row_number() OVER (ORDER BY i.arrival) AS place
        FROM inbox i WHERE i.run = h.run ORDER BY i.arrival LIMIT $3
    ) m
) d
ORDER BY {order}
