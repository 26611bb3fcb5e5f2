-- Open hooks of the workspace $1 in the order of a list, at most $2, with their runs and the deliveries to them among the first
-- messages of each run, of which $3 are looked at. A delivery is stored as text that begins with its token.
SELECT {run}, h.token, h.visit, h.opened, d.deliveries, d.read
FROM (
    SELECT h.token, h.visit, h.opened, h.run FROM hooks h WHERE h.workspace = $1 AND {stretch} ORDER BY {order} LIMIT $2
) h
JOIN runs r ON r.num = h.run
CROSS JOIN LATERAL (
    SELECT count(*) AS read,
        count(*) FILTER (WHERE starts_with(m.message, '{{"delivery":{{"token":' || to_json(h.token)::text)) AS deliveries
    FROM (SELECT i.message FROM inbox i WHERE i.run = h.run ORDER BY i.arrival LIMIT $3) m
) d
ORDER BY {order}
