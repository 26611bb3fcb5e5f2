-- Plain commits of runs that wait, pause, end, or say that a timer has fired; a row for each in {moves}. Status 0 is PENDING,
-- 1 RUNNING, 2 WAITING, from 4 on the run has ended.
-- Repeats `rules::commit::decide` (WHERE) and `state_after` with `rules::finish::ended` (SET). Where it is narrower, the verb
-- decides. The suite's `commit_rule` compares each combination with the rule.
moved AS (
    UPDATE runs r
    SET version = c.version,
        stalls = 0,
        status = c.status,
        node = CASE WHEN c.status = 1 THEN r.node END,
        due = CASE
            WHEN c.status = 1 THEN r.due
            -- What arrived unseen while the driver decided to wait wakes the run at once.
            WHEN c.status = 2 AND r.arrivals > c.seen THEN clock.now
            WHEN c.status = 2 THEN c.due
        END,
        attention = c.attention,
        ended = CASE WHEN c.status >= 4 THEN clock.now ELSE r.ended END,
        purge = CASE
            WHEN c.status < 4 THEN r.purge
            WHEN r.keep_history > 9223372036854775807 - clock.now THEN 9223372036854775807
            ELSE clock.now + r.keep_history
        END
    FROM clock, {moves} AS c (num, expected, version, entries, status, due, seen, not_before, attention)
    WHERE r.num = c.num
        AND r.version = c.expected
        AND r.status = 1
        AND c.status <> 0
        AND (c.not_before IS NULL OR c.not_before <= clock.now)
        -- A run with ties that ends, rests or pauses may change rows of other tables: the slow way, which locks the run first
        -- and looks then. Which ties it has is not asked here. Under READ COMMITTED a statement that has waited for the
        -- lock reads the new row of the run, but everything else as it was when the statement began: it would not see a
        -- once that was granted meanwhile.
        AND (NOT r.ties OR c.status = 1)
    RETURNING r.num, c.expected, c.entries, r.arrivals
)
