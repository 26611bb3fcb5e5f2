INSERT INTO receipts AS x (run, kind, count, first, last, recent, workspace)
VALUES ($1, $2, $3, $4, $5, $6, $8)
ON CONFLICT (run, kind) DO UPDATE SET count = $3, first = $4, last = $5, recent = $6 WHERE x.count = $7
