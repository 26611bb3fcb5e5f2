-- Many plain commits at once, and the mark of it all. Does to each run what the verb would do, or leaves it alone: those
-- that are not in the answer are tried again one by one, which gives them their reason. Status 1 is RUNNING, 2 WAITING,
-- from 4 on the run has ended.
-- $1 mark, $2 the time (null: the database's). Then one element per commit: $3 to $6 of runs that just go on, almost all
-- of them and therefore apart; $7 to $14 of runs that wait, pause, end, or say that a timer has fired.
WITH clock AS MATERIALIZED (
    SELECT coalesce($2::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
),
marked AS (
    INSERT INTO marks (id, at, took)
    SELECT $1::uuid, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, true
),
stepped AS (
    UPDATE runs r
    SET version = c.version, stalls = 0
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[]) AS c (num, expected, version, entries)
    WHERE r.num = c.num AND r.version = c.expected AND r.status = 1
    RETURNING r.num, c.expected, c.entries
),
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
        ended = CASE WHEN c.status >= 4 THEN clock.now ELSE r.ended END,
        purge = CASE
            WHEN c.status < 4 THEN r.purge
            WHEN r.keep_history > 9223372036854775807 - clock.now THEN 9223372036854775807
            ELSE clock.now + r.keep_history
        END
    FROM clock,
        unnest($7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::smallint[], $12::bigint[], $13::bigint[],
            $14::bigint[])
            AS c (num, expected, version, entries, status, due, seen, not_before)
    WHERE r.num = c.num
        AND r.version = c.expected
        AND r.status = 1
        AND (c.not_before IS NULL OR c.not_before <= clock.now)
        -- An end with ties changes other rows too: the slow way.
        AND (c.status < 4 OR NOT r.ties)
    RETURNING r.num, c.expected, c.entries
),
appended AS (
    INSERT INTO ledger (run, seq, at, entries)
    SELECT s.num, s.expected, (SELECT now FROM clock), s.entries
    FROM (SELECT * FROM stepped UNION ALL SELECT * FROM moved) s
    RETURNING run
)
SELECT array_agg(run) FROM appended
