-- Claimed runs, which `due` has locked: their new states and the entries that say so. Answers with how many there were.
-- One element per run; the time is $1.
-- The states are decided by `rules::claim::decide`. The guard on the version is that of `RunRows::save`.
WITH taken AS (
    UPDATE runs r
    SET version = t.version, status = t.status, due = t.due, node = t.node, stalls = t.stalls, attention = t.attention
    FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::uuid[], $8::integer[],
        $9::smallint[], $10::text[])
        AS t (num, expected, version, status, due, node, stalls, attention, entries)
    WHERE r.num = t.num AND r.version = t.expected
    RETURNING r.num, t.expected, t.entries
)
INSERT INTO ledger (run, seq, at, entries)
SELECT num, expected, $1::bigint, entries FROM taken
