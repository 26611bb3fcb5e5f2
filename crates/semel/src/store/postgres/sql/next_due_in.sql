-- The earliest time later than $2 at which a run of one of the families $1 is due; null if there is none. One look into the
-- index runs_family for each.
SELECT min(n.due)
FROM unnest($1::text[]) AS f (prefix)
CROSS JOIN LATERAL (
    SELECT q.due
    FROM runs q
    WHERE substr(q.workflow_version, 5, 1) = '_' AND substr(q.workflow_version, 1, 5) = f.prefix
        AND q.due > $2::bigint
    ORDER BY q.due
    LIMIT 1
) n
