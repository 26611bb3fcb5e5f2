-- All of some runs' ledgers ($1), from the commit that contains entry number $2: the last one with fewer before it.
SELECT l.run, l.seq, l.at, l.entries
FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place)
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
