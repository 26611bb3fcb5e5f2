-- Writes the receipts of one kind of a run that exists.
INSERT OR REPLACE INTO receipts (run, kind, count, first, last, recent)
SELECT num, ?2, ?3, ?4, ?5, ?6 FROM runs WHERE num = ?1
