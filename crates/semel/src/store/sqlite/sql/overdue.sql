-- Runs whose deadline has passed, the longest overdue first. The condition is that of the index runs_deadline. It repeats
-- `rules::deadline::is_limited`: only PENDING (0), RUNNING (1) and WAITING (2) runs are ended by their time limit. The verb
-- asks the rule again.
SELECT {run}
FROM runs INDEXED BY runs_deadline JOIN heads USING (num)
WHERE deadline IS NOT NULL AND status < 3 AND deadline <= ?
ORDER BY deadline, num
LIMIT ?
