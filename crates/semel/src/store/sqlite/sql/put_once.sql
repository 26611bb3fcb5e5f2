-- Writes the row of a `run_once` value.
INSERT OR REPLACE INTO once (workspace, scope, label, owner, fence, value, expires)
VALUES (?, ?, ?, ?, ?, ?, ?)
