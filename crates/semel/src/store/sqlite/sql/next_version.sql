-- The next version of a workspace with runs that are due or will be.
SELECT workflow, workflow_version
FROM runs INDEXED BY runs_due
WHERE due IS NOT NULL AND workspace = ?1 AND (workflow, workflow_version) > (?2, ?3)
ORDER BY workflow, workflow_version
LIMIT 1
