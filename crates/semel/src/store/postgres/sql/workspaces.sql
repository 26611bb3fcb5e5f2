-- seen: workspaces that have runs which have not completed, at most $1. They are found one after the other in the index of
-- states, which has no completed runs.
WITH RECURSIVE workspaces (workspace) AS (
    (SELECT r.workspace FROM runs r WHERE r.status <> 4 ORDER BY r.workspace, r.status, r.created, r.num LIMIT 1)
    UNION ALL
    SELECT (
        SELECT r.workspace FROM runs r WHERE r.status <> 4 AND r.workspace > w.workspace
        ORDER BY r.workspace, r.status, r.created, r.num LIMIT 1
    )
    FROM workspaces w WHERE w.workspace IS NOT NULL
), seen (workspace) AS MATERIALIZED (
    SELECT w.workspace FROM workspaces w WHERE w.workspace IS NOT NULL LIMIT $1
)
