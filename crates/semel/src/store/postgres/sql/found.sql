-- Finds the commits of a batch that are in the ledger, after its answer was lost.
SELECT array_agg(c.num), array_agg(r.arrivals)
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS c (num, expected, entries)
JOIN ledger l ON l.run = c.num AND l.seq = c.expected AND l.entries = c.entries
JOIN runs r ON r.num = c.num
