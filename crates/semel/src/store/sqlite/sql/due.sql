-- Due runs of one version of a workflow, the longest due first.
SELECT {run}
FROM runs JOIN heads USING (num)
WHERE workspace = ? AND workflow = ? AND workflow_version = ? AND due <= ?
ORDER BY due, num
LIMIT ?
