-- Ends of runs whose parents wait for them, a row for each in {ends}: the run ends, and its parent gets the message. After
-- clock.sql, and after lock.sql in the same transaction: the ties of runs that are locked do not change any more, so this
-- statement may ask for them. An end that changes anything else (a token, a `run_once` value, waiting runs) is left alone; so is that of
-- a run which another one in here tells of its end, for no row can be changed twice. Status 1 is RUNNING, 2 WAITING, from
-- 4 on a run has ended. The answer: the numbers of the runs.
-- Repeats `rules::commit::decide` and `rules::finish::ended` for the run, and for its parent what `InboxRows::arrive` does.
-- Where it is narrower, the verb decides. The suite's `commit_rule` compares each combination with the rule.
asked AS MATERIALIZED (
    SELECT c.*, w.watcher
    FROM {ends} WITH ORDINALITY AS c (num, expected, version, entries, id, status, visit, message, place)
    CROSS JOIN LATERAL (
        SELECT max(watcher) AS watcher, max(visit) AS visit, count(*) AS many FROM watchers WHERE run = c.num
    ) w
    WHERE w.many = 1
        AND w.visit = c.visit
        AND NOT EXISTS (SELECT FROM hooks h WHERE h.run = c.num)
        AND NOT EXISTS (SELECT FROM once o WHERE o.owner = c.id AND o.value IS NULL)
),
ended AS (
    UPDATE runs r
    SET version = c.version,
        stalls = 0,
        status = c.status,
        node = NULL,
        due = NULL,
        ended = clock.now,
        purge = CASE
            WHEN r.keep_history > 9223372036854775807 - clock.now THEN 9223372036854775807
            ELSE clock.now + r.keep_history
        END,
        ties = false
    FROM clock, asked c
    WHERE r.num = c.num
        AND r.version = c.expected
        AND r.status = 1
        AND c.num NOT IN (SELECT watcher FROM asked)
    RETURNING r.num, c.expected, c.entries, r.arrivals, c.watcher, c.message, c.place
),
untied AS (
    DELETE FROM watchers w USING ended e WHERE w.run = e.num
),
told AS (
    UPDATE runs p
    SET arrivals = p.arrivals + k.many,
        due = CASE WHEN p.status = 2 THEN LEAST(p.due, clock.now) ELSE p.due END
    FROM clock, (SELECT watcher, count(*) AS many FROM ended GROUP BY watcher) k
    WHERE p.num = k.watcher AND p.status < 4
    RETURNING p.num, p.arrivals - k.many AS before
),
arrived AS (
    INSERT INTO inbox (run, arrival, at, message)
    SELECT t.num, t.before + row_number() OVER (PARTITION BY t.num ORDER BY e.place), clock.now, e.message
    FROM clock, told t JOIN ended e ON e.watcher = t.num
),
