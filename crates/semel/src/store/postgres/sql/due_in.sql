-- r: due runs of the families $1, at most $3 of each, the longest due first. Rows that other transactions have locked are
-- left out. The conditions are those of the index runs_family.
WITH r AS (
    SELECT l.*
    FROM unnest($1::text[]) AS f (prefix)
    CROSS JOIN LATERAL (
        SELECT q.*
        FROM runs q
        WHERE substr(q.workflow_version, 5, 1) = '_' AND substr(q.workflow_version, 1, 5) = f.prefix
            AND q.due <= $2::bigint
        ORDER BY q.due, q.num
        LIMIT $3::bigint
        FOR NO KEY UPDATE SKIP LOCKED
    ) l
)
