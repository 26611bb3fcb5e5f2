-- Status 1 is RUNNING.
WITH saved AS (
    UPDATE runs
    SET version = version + $3, stalls = 0
    WHERE num = $1 AND version = $2 AND status = 1
    RETURNING num
)
INSERT INTO ledger (run, seq, at, entries)
SELECT num, $2, $4, $5 FROM saved
