-- Due runs of one family, the longest due first: one range of the index runs_family.
SELECT {run}
FROM runs INDEXED BY runs_family JOIN heads USING (num)
WHERE {of_family} AND due <= ?
ORDER BY due, num
LIMIT ?
