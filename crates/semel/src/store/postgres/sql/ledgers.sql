-- All of some runs' ledgers ($1), from the commit that contains entry number $2: the last one with fewer before it. Of a run
-- whose history is forgotten nothing, although the sweep may not be through with its rows.
SELECT l.run, l.seq, l.at, l.entries
FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place)
JOIN runs r ON r.num = n.num AND NOT r.purged
CROSS JOIN LATERAL (
    SELECT *
    FROM ledger
    WHERE run = n.num
        AND seq >= coalesce(
            (SELECT seq FROM ledger WHERE run = n.num AND seq < $2::bigint ORDER BY seq DESC LIMIT 1),
            0
        )
) l
ORDER BY n.place, l.seq
