-- What a list shows of the runs $1 beside their headers, in their order. Commits of more than $2 bytes are left out.
SELECT n.num, coalesce(d.count, 0)::bigint, f.entries, t.texts, h.token, h.visit
FROM unnest($1::bigint[]) WITH ORDINALITY AS n (num, place)
LEFT JOIN LATERAL (SELECT sum(r.count) AS count FROM receipts r WHERE r.run = n.num AND r.kind < $4) d ON true
LEFT JOIN LATERAL (
    SELECT l.entries FROM ledger l WHERE l.run = n.num AND l.seq = 0 AND octet_length(l.entries) <= $2
) f ON true
LEFT JOIN LATERAL (
    SELECT array_agg(l.entries ORDER BY l.seq DESC) AS texts
    FROM (SELECT l.seq, l.entries FROM ledger l WHERE l.run = n.num ORDER BY l.seq DESC LIMIT $3) l
    WHERE octet_length(l.entries) <= $2
) t ON true
LEFT JOIN LATERAL (
    SELECT h.token, h.visit FROM hooks h WHERE h.run = n.num ORDER BY h.opened DESC, h.token LIMIT 1
) h ON true
ORDER BY n.place
