-- Commits of a run ($1) from the one that contains entry number $2: at most $3 of them, and none after the one that
-- exceeds $4 bytes. The length of a text is known without reading it.
SELECT run, seq, at, entries
FROM (
    SELECT
        c.*,
        coalesce(
            sum(octet_length(entries)) OVER (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            0
        ) AS bytes_before
    FROM (
        SELECT run, seq, at, entries
        FROM ledger
        WHERE run = $1::bigint
            AND seq >= coalesce(
                (SELECT seq FROM ledger WHERE run = $1::bigint AND seq < $2::bigint ORDER BY seq DESC LIMIT 1),
                0
            )
        ORDER BY seq
        LIMIT $3::bigint
    ) c
) p
WHERE bytes_before < $4::bigint
ORDER BY seq
