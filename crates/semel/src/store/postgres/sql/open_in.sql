-- Open runs of a workspace, at most $2 of each status (0 to 3). `status <> 4` is the condition of the index.
SELECT count(*)
FROM (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS s (status)
CROSS JOIN LATERAL (
    SELECT 1
    FROM runs r
    WHERE r.workspace = $1 AND r.status = s.status AND r.status <> 4
    ORDER BY r.created, r.num
    LIMIT $2
) r
