-- Moves the head of a ledger from version ?2 to ?3 as its run ends. It repeats `rules::commit::decide`: the run is running, and
-- has no ties (`running` is 2 if it has).
UPDATE heads
SET version = ?3, last = ?4, running = 0, stalls = 0
WHERE num = ?1 AND version = ?2 AND running = 1
