-- New runs without a driver, one element of the arrays for each. One whose key or id is taken is left out. The answer:
-- their ids and numbers.
INSERT INTO runs (id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, parent, keep_history, keep_key,
    created, status, version, due, stalls, holds_key, ties, deadline)
SELECT *
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::uuid[], $9::uuid[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::smallint[], $14::bigint[], $15::bigint[], $16::integer[], $17::boolean[],
    $18::boolean[], $19::bigint[])
ON CONFLICT DO NOTHING
RETURNING id, num
