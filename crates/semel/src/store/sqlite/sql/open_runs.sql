-- Open runs of a workspace at one status: a bounded stretch of a partial index.
SELECT num, workflow
FROM runs INDEXED BY {index}
WHERE {condition} AND workspace = ?1 AND status = ?2
LIMIT ?3
