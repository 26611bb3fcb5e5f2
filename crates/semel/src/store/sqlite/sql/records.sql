-- A page of records of one kind that have not expired. The condition compares the id with ?2 where the page begins; it is no `OR`,
-- so that the index is entered there.
SELECT kind, id, version, body, at, expires
FROM records
WHERE kind = ?1 AND {behind} AND (expires IS NULL OR expires > ?3)
ORDER BY id {order}
LIMIT ?4
