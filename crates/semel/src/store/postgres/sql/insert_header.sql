-- Any conflict counts: of the key, and of an id that is there already.
INSERT INTO runs (
    id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key, created,
    status, version, due, node, stalls, ended, purge, holds_key, ties, deadline
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
ON CONFLICT DO NOTHING
RETURNING num
