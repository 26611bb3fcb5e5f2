-- The entries of the commits that are saved, which stand in {saved}. The answer: the numbers of their runs, how many messages
-- have arrived for each, and the time.
appended AS (
    INSERT INTO ledger (run, seq, at, entries)
    SELECT s.num, s.expected, (SELECT now FROM clock), s.entries
    FROM {saved} s
)
SELECT {answer}, (SELECT now FROM clock) FROM {saved} s
