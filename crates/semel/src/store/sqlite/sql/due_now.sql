-- How many runs are due, counted up to ?2. The condition `due IS NOT NULL` is that of the index runs_next.
SELECT count(*)
FROM (
    SELECT 1 FROM runs INDEXED BY runs_next
    WHERE due IS NOT NULL AND due <= ?1
    LIMIT ?2
)
