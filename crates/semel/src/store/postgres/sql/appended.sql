-- The entries of the commits that are saved, which stand in {saved}. The answer: the numbers of their runs.
INSERT INTO ledger (run, seq, at, entries)
SELECT s.num, s.expected, (SELECT now FROM clock), s.entries
FROM {saved} s
RETURNING run
