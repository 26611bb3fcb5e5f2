-- The receipts of workspace $1 behind a place, the latest first, none older than $5. Of those that are not of kind $6 or whose run
-- has not the key $7 only the place is given.
SELECT r.id, r.workflow, r.scope, r.key, x.run, x.kind, x.count, x.first, x.last,
    CASE
        WHEN ($6::smallint IS NULL OR x.kind = $6) AND ($7::text IS NULL OR r.key = $7)
        THEN (x.recent::json -> -1)::text
    END
FROM (
    SELECT *
    FROM receipts
    WHERE workspace = $1 AND (last, run, kind) < ($2::bigint, $3::bigint, $4::smallint) AND last >= $5
    ORDER BY last DESC, run DESC, kind DESC
    LIMIT $8
) x
JOIN runs r ON r.num = x.run
ORDER BY x.last DESC, x.run DESC, x.kind DESC
