-- The whole ledgers of some runs ($1), in order: none after the one that exceeds $2 bytes. Of a run whose history is forgotten
-- nothing, although the sweep may not be through with its rows. The length of a text is known without reading it.
SELECT run, seq, at, entries
FROM (
    SELECT
        n.place,
        l.run,
        l.seq,
        l.at,
        l.entries,
        -- Those of the same run have the same place: the first sum includes all of them, the second is of them alone.
        sum(octet_length(l.entries)) OVER (ORDER BY n.place)
            - sum(octet_length(l.entries)) OVER (PARTITION BY n.place) AS bytes_before
    FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place)
    JOIN runs r ON r.num = n.num AND NOT r.purged
    JOIN ledger l ON l.run = n.num
) p
WHERE bytes_before < $2::bigint
ORDER BY place, seq
