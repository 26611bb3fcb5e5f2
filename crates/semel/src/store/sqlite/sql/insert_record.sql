-- Writes a record that must not exist yet.
INSERT INTO records (kind, id, version, body, at, expires)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
