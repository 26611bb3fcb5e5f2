-- For each version of a workflow, in the order in which they were given, the earliest time later than $4 at which a run of
-- it is due; null if there is none. Each is one look into the index of due runs.
SELECT (
    SELECT q.due
    FROM runs q
    WHERE q.workspace = w.workspace AND q.workflow = w.workflow AND q.workflow_version = w.workflow_version
        AND q.due > $4::bigint
    ORDER BY q.due
    LIMIT 1
)
FROM unnest($1::uuid[], $2::text[], $3::text[]) WITH ORDINALITY AS w (workspace, workflow, workflow_version, place)
ORDER BY w.place
