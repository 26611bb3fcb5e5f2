-- r: due runs of some versions of workflows, at most $5, the longest due first.
-- First, without a lock, how many of each version are among the first ones; then that number of each is locked, past those
-- that others have locked. So no more is locked than taken, a long queue of one workflow does not hide the others, and
-- no claim waits for another.
WITH wanted AS (
    SELECT f.workspace, f.workflow, f.workflow_version, count(*) AS many
    FROM (
        SELECT w.workspace, w.workflow, w.workflow_version
        FROM (
            SELECT DISTINCT * FROM unnest($1::uuid[], $2::text[], $3::text[]) AS u (workspace, workflow, workflow_version)
        ) w
        CROSS JOIN LATERAL (
            SELECT q.due, q.num
            FROM runs q
            WHERE q.workspace = w.workspace AND q.workflow = w.workflow AND q.workflow_version = w.workflow_version
                AND q.due <= $4::bigint
            ORDER BY q.due, q.num
            LIMIT $5::bigint
        ) d
        ORDER BY d.due, d.num
        LIMIT $5::bigint
    ) f
    GROUP BY f.workspace, f.workflow, f.workflow_version
),
r AS (
    SELECT l.*
    FROM wanted
    CROSS JOIN LATERAL (
        SELECT q.*
        FROM runs q
        WHERE q.workspace = wanted.workspace AND q.workflow = wanted.workflow
            AND q.workflow_version = wanted.workflow_version AND q.due <= $4::bigint
        ORDER BY q.due, q.num
        LIMIT wanted.many
        FOR NO KEY UPDATE SKIP LOCKED
    ) l
)
