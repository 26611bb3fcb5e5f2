-- The receipts of workspace ?1 behind a place, the latest first, none older than ?5. Of those that are not of kind ?6 or whose run
-- has not the key ?7 only the place is given. The statement names its index, because the planner would walk the receipts of
-- all tenants.
SELECT r.id, r.workflow, r.scope, r.key, x.run, x.kind, x.count, x.first, x.last,
    CASE WHEN (?6 IS NULL OR x.kind = ?6) AND (?7 IS NULL OR r.key = ?7) THEN json_extract(x.recent, '$[#-1]') END
FROM receipts x INDEXED BY receipts_last CROSS JOIN runs r ON r.num = x.run
WHERE x.workspace = ?1 AND (x.last, x.run, x.kind) < (?2, ?3, ?4) AND x.last >= ?5
ORDER BY x.last DESC, x.run DESC, x.kind DESC
LIMIT ?8
