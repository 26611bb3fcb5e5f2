-- Forgets up to $1 marks that are older than an hour, far longer than a lost answer is looked up. Their ids
-- are ordered by time, so the oldest are found by the primary key; what decides is when they were really written.
DELETE FROM marks
WHERE id IN (
        SELECT id
        FROM marks
        WHERE id < (
            SELECT (lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 3600000), 12, '0')
                || repeat('0', 20))::uuid
        )
        ORDER BY id
        LIMIT $1::bigint
        FOR UPDATE SKIP LOCKED
    )
    AND at < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 3600000
