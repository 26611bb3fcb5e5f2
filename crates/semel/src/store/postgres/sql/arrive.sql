-- Repeats `Status::is_terminal` (statuses from 4 on have ended), and what `InboxRows::arrive` says of a WAITING (2) run. LEAST
-- ignores a due that is not there.
WITH run AS (
    UPDATE runs
    SET arrivals = arrivals + 1, due = CASE WHEN status = 2 THEN LEAST(due, $2) ELSE due END
    WHERE num = $1 AND status < 4
    RETURNING arrivals
)
INSERT INTO inbox (run, arrival, at, message)
SELECT $1, arrivals, $2, $3 FROM run
RETURNING arrival
