-- Workflow versions of the workspace $1 with runs that are due or will be, found one after the other, at most $2; of each the
-- runs that are due at $3 and at $4, at most $5, and since when. Only versions of the workflow $6, if it is not null.
WITH RECURSIVE seen (workflow, version, place) AS (
    (
        SELECT r.workflow, r.workflow_version, 1::bigint FROM runs r
        WHERE r.due IS NOT NULL AND r.workspace = $1 AND ($6::text IS NULL OR r.workflow >= $6 COLLATE "C")
        ORDER BY r.workflow, r.workflow_version LIMIT 1
    )
    UNION ALL
    SELECT n.workflow, n.workflow_version, s.place + 1
    FROM seen s CROSS JOIN LATERAL (
        SELECT r.workflow, r.workflow_version FROM runs r
        WHERE r.due IS NOT NULL AND r.workspace = $1 AND (r.workflow, r.workflow_version) > (s.workflow, s.version)
        ORDER BY r.workflow, r.workflow_version LIMIT 1
    ) n
    WHERE s.place < $2 AND ($6::text IS NULL OR s.workflow = $6)
)
SELECT s.workflow, s.version, d.due, d.late, d.oldest
FROM seen s CROSS JOIN LATERAL (
    SELECT count(*) AS due, count(*) FILTER (WHERE q.due <= $4) AS late, min(q.due) AS oldest
    FROM (
        SELECT r.due FROM runs r
        WHERE r.due IS NOT NULL AND r.workspace = $1 AND r.workflow = s.workflow AND r.workflow_version = s.version
            AND r.due <= $3
        ORDER BY r.due LIMIT $5
    ) q
) d
WHERE $6::text IS NULL OR s.workflow = $6
ORDER BY s.workflow, s.version
