-- Counts a message that has arrived for run ?1 at time ?2, and makes a run that waits due. Answers with the message's number,
-- or nothing if there is no such open run.
-- It repeats `Status::is_terminal` (statuses from 4 on have ended), and what `InboxRows::arrive` says of a WAITING (2) run.
UPDATE runs
SET arrivals = arrivals + 1, due = CASE WHEN status = 2 THEN min(coalesce(due, ?2), ?2) ELSE due END
WHERE num = ?1 AND status < 4
RETURNING arrivals
