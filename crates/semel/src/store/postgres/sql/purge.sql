-- Deletes up to $2 rows of the history of run $1: the calls that it remembers, its messages, its entries, the oldest first; and
-- its receipts, which are few. Answers how many there were. With $3 the run's header is changed, too: it has no history any
-- more; and if fewer rows than $2 were there, nothing is left, and the run is deleted ($4) or looked at again at $5.
WITH x AS (
    DELETE FROM receipts WHERE run = $1::bigint
),
c AS (
    DELETE FROM calls
    WHERE ctid = ANY (ARRAY(SELECT ctid FROM calls WHERE run = $1 LIMIT $2::bigint))
    RETURNING 1
),
-- A range, not a list: its plan is a walk along the index, however many there are.
i AS (
    DELETE FROM inbox
    WHERE run = $1
        AND arrival <= (
            SELECT max(f.arrival)
            FROM (
                SELECT arrival FROM inbox WHERE run = $1 ORDER BY arrival LIMIT $2 - (SELECT count(*) FROM c)
            ) f
        )
    RETURNING 1
),
l AS (
    DELETE FROM ledger
    WHERE run = $1
        AND seq <= (
            SELECT max(f.seq)
            FROM (
                SELECT seq FROM ledger WHERE run = $1 ORDER BY seq
                LIMIT $2 - (SELECT count(*) FROM c) - (SELECT count(*) FROM i)
            ) f
        )
    RETURNING 1
),
n AS MATERIALIZED (
    SELECT (SELECT count(*) FROM c) + (SELECT count(*) FROM i) + (SELECT count(*) FROM l) AS gone
),
hidden AS (
    UPDATE runs r
    SET purged = true, purge = CASE WHEN n.gone < $2 THEN coalesce($5::bigint, r.purge) ELSE r.purge END
    FROM n
    WHERE r.num = $1 AND $3::boolean AND NOT ($4::boolean AND n.gone < $2)
),
gone AS (
    DELETE FROM runs r USING n WHERE r.num = $1 AND $3 AND $4 AND n.gone < $2
)
SELECT gone FROM n
