-- How many open runs of a workspace are at one status, counted up to ?3.
SELECT count(*)
FROM (
    SELECT 1 FROM runs INDEXED BY {index}
    WHERE {condition} AND workspace = ?1 AND status = ?2
    LIMIT ?3
)
