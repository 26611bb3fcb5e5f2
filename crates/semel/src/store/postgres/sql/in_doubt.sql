-- How many of the paused runs $1 are paused because of a step in doubt. It repeats what verbs/counts.rs asks of the decoded
-- entries, because their values need not travel for a number.
SELECT count(*)
FROM unnest($1::bigint[]) AS p (num)
CROSS JOIN LATERAL (
    SELECT l.entries
    FROM (SELECT seq, entries FROM ledger WHERE run = p.num ORDER BY seq DESC LIMIT 16) l
    WHERE l.entries LIKE '%"paused":{"reason":%'
    ORDER BY l.seq DESC LIMIT 1
) l
WHERE l.entries LIKE '%"paused":{"reason":"inDoubt"}%'
