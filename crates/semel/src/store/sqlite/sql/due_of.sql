-- How many runs of a version are due at ?4, and since when.
SELECT count(*), min(due)
FROM (
    SELECT due
    FROM runs INDEXED BY runs_due
    WHERE due IS NOT NULL AND workspace = ?1 AND workflow = ?2 AND workflow_version = ?3 AND due <= ?4
    ORDER BY due
    LIMIT ?5
)
