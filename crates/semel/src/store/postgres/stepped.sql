-- Many plain commits at once, and the mark of it all; in three parts: this one, moved.sql, which is left out if all runs
-- just go on, as almost always, and appended.sql. Does to each run what the verb would do, or leaves it alone: those
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
