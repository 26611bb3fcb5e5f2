-- The `run_once` values whose grant a run has: they have no value yet.
SELECT owner, fence, value, expires, workspace, scope, label
FROM once
WHERE owner = ? AND value IS NULL
ORDER BY scope, label
