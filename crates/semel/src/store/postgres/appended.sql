-- The last part of commit.sql: the entries of those that are saved. The answer: their numbers.
appended AS (
    INSERT INTO ledger (run, seq, at, entries)
    SELECT s.num, s.expected, (SELECT now FROM clock), s.entries
    FROM written s
    RETURNING run
)
SELECT array_agg(run) FROM appended
