-- How often each run that a node drives has stalled.
SELECT stalls
FROM runs INDEXED BY runs_driven JOIN heads USING (num)
WHERE node IS NOT NULL AND node = ?
