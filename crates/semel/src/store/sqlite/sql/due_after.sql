-- The earliest time after the last parameter at which a run of one version of a workflow is due: one look into the index.
SELECT min(due)
FROM runs
WHERE workspace = ? AND workflow = ? AND workflow_version = ? AND due > ?
