-- Runs by their keys, in a stretch of an index of keys: from ?3, but for ?4, to ?5. The last condition is that of the index,
-- word for word.
SELECT {run}
FROM runs INDEXED BY {index} CROSS JOIN heads USING (num)
WHERE workspace = ?1 AND scope = ?2 AND key >= ?3 AND key <> ?4 AND key < ?5 AND {condition}
ORDER BY key, num LIMIT ?6
