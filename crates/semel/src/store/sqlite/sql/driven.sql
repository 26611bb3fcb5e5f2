-- Runs that dead nodes drive. One pass through the driven runs, however many nodes have died: there is no index by node.
SELECT num, node, stalls
FROM runs INDEXED BY runs_driven JOIN heads USING (num)
WHERE node IS NOT NULL AND node IN (SELECT id FROM nodes WHERE lease IS NULL)
ORDER BY num
LIMIT ?
