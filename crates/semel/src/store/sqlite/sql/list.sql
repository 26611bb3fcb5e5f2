-- A stretch of an index of runs of a workspace: created before (?2, ?3) and not before (?4, ?5). The last condition is that of
-- the index, word for word, and what else the list asks for.
SELECT {run}
FROM runs INDEXED BY {index} CROSS JOIN heads USING (num)
WHERE workspace = ?1 AND (created, num) < (?2, ?3) AND (created, num) >= (?4, ?5) {condition}
