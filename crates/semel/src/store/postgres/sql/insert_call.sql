-- Without a run to replace ($8), the condition is null and the row stays as it is.
INSERT INTO calls (workspace, scope, id, run, owner, fingerprint, result)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (workspace, scope, id) DO UPDATE
SET run = $4, owner = $5, fingerprint = $6, result = $7
WHERE calls.owner = $8
