-- Writes the part of a run's state that stands apart from the head of its ledger.
UPDATE runs
SET status = ?2, due = ?3, node = ?4, ended = ?5, purge = ?6, holds_key = ?7, ties = ?8, deadline = ?9, attention = ?10
WHERE num = ?1
