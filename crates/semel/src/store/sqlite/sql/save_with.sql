-- Moves the head of a ledger from version ?2 to ?3, with the row ?6 that is appended. The guard is the version.
UPDATE heads
SET version = ?3, running = ?4, stalls = ?5, last = ?6
WHERE num = ?1 AND version = ?2
