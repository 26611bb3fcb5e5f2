-- New runs with their first entries, a row for each in {runs}, and the mark of it all, if it needs one. After clock.sql. A run
-- whose key or id is taken, or whose node is not alive, is left alone: those that are not in the answer are tried again one by
-- one. The answer: the places of those that are made, from 1, and their numbers; and the time.
-- $1 the time, $2 mark, $3 the nodes for which runs are claimed. Then the columns of the runs, in the order of their keys. A
-- run without a time of its creation is created now; if it has no driver, it is due now, too.
-- Repeats `store::verbs::is_alive` for the nodes; the rest of each row is decided by `rules::start::created_run` before.
marked AS (
    INSERT INTO marks (id, at, took)
    SELECT $2::uuid, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, true
    WHERE $2 IS NOT NULL
),
-- Locked until the end: the sweep cannot take a node for dead while runs are given to it.
alive AS MATERIALIZED (
    SELECT n.id
    FROM nodes n
    WHERE n.id = ANY ($3::uuid[]) AND n.lease > (SELECT now FROM clock)
    ORDER BY n.id
    FOR KEY SHARE
),
asked AS MATERIALIZED (
    SELECT id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, keep_key,
        coalesce(created, now) AS created, status, version,
        CASE WHEN created IS NULL AND due IS NOT NULL THEN now ELSE due END AS due, node, stalls, deadline,
        entries, place
    FROM clock, {runs}
        AS a (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, keep_key, created,
            status, version, due, node, stalls, deadline, entries, place)
),
made AS (
    INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, keep_key,
        created, status, version, due, node, stalls, deadline, holds_key, ties)
    SELECT id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, keep_history, keep_key,
        created, status, version, due, node, stalls, deadline, true, false
    FROM asked
    WHERE node IS NULL OR node IN (SELECT id FROM alive)
    ON CONFLICT DO NOTHING
    RETURNING num, id
),
placed AS MATERIALIZED (
    SELECT a.place, m.num, a.created, a.entries
    FROM made m JOIN asked a ON a.id = m.id
),
appended AS (
    INSERT INTO ledger (run, seq, at, entries)
    SELECT num, 0, created, entries FROM placed
)
SELECT array_agg(place), array_agg(num), (SELECT now FROM clock) FROM placed
