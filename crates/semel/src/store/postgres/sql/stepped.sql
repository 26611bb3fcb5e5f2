-- Plain commits of runs that just go on, as almost all do. What is in {steps} has one row for each: one of parameters, or
-- one for each element of arrays. Status 1 is RUNNING.
-- Repeats `rules::commit::decide` (WHERE) and `state_after` (SET) for commits with which the run goes on. The suite's
-- `commit_rule` compares each combination with the rule.
stepped AS (
    UPDATE runs r
    SET version = c.version, stalls = 0
    FROM {steps} AS c (num, expected, version, entries)
    WHERE r.num = c.num AND r.version = c.expected AND r.status = 1
    RETURNING r.num, c.expected, c.entries, r.arrivals
)
