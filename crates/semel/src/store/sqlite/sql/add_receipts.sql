-- Writes the receipts of one kind of a run that exists.
INSERT OR REPLACE INTO receipts (run, kind, count, first, last, recent, workspace)
SELECT num, ?2, ?3, ?4, ?5, ?6, workspace FROM runs WHERE num = ?1
