-- Open runs of the workspaces in `seen` by workflow and state, at most $1 of each state, and the numbers of the paused ones.
SELECT o.workflow, s.status, count(*), CASE WHEN s.status = 3 THEN array_agg(o.num) END
FROM (VALUES (0::smallint), (1::smallint), (2::smallint), (3::smallint)) AS s (status)
CROSS JOIN LATERAL (
    SELECT r.workflow, r.num
    FROM seen w
    CROSS JOIN LATERAL (
        SELECT r.workflow, r.num FROM runs r
        WHERE r.workspace = w.workspace AND r.status = s.status AND r.status <> 4
        ORDER BY r.created, r.num LIMIT $1
    ) r
    LIMIT $1
) o
GROUP BY o.workflow, s.status
