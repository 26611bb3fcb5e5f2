-- The latest commits of a run, the last one first; those that are too large are null.
WITH RECURSIVE tail (place, rest) AS (
    SELECT last, ?2 FROM heads WHERE num = ?1
    UNION ALL
    SELECT l.prev, t.rest - 1 FROM tail t JOIN ledger l ON l.num = t.place WHERE t.rest > 1
)
SELECT CASE WHEN octet_length(l.entries) <= ?3 THEN l.entries END
FROM tail t JOIN ledger l ON l.num = t.place
ORDER BY l.seq DESC
