-- The nodes of driven runs of a workspace, with the number of these runs.
SELECT node, count(*)
FROM (
    SELECT node FROM runs INDEXED BY runs_driven WHERE node IS NOT NULL AND workspace = ?1 LIMIT ?2
)
GROUP BY node
ORDER BY node
