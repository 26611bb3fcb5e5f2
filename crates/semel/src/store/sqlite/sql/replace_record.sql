-- Replaces a record that must be at version ?7.
UPDATE records
SET version = ?3, body = ?4, at = ?5, expires = ?6
WHERE kind = ?1 AND id = ?2 AND version = ?7
