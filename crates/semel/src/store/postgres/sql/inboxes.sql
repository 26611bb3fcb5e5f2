-- What is in some runs' inboxes ($1) from the message number $2 on, in order: nothing after the message that exceeds $3 bytes.
-- The length of a text is known without reading it.
SELECT run, arrival, at, message
FROM (
    SELECT
        n.place,
        i.run,
        i.arrival,
        i.at,
        i.message,
        coalesce(
            sum(octet_length(i.message))
                OVER (ORDER BY n.place, i.arrival ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            0
        ) AS bytes_before
    FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place)
    JOIN runs r ON r.num = n.num AND NOT r.purged
    JOIN inbox i ON i.run = n.num AND i.arrival >= $2::bigint
) p
WHERE bytes_before < $3::bigint
ORDER BY place, arrival
