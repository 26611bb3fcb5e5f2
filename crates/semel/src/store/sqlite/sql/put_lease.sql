-- Sets or ends (?2 is null) the lease of a node. A node that has departed is back as soon as it has a lease again.
INSERT INTO nodes (id, lease)
VALUES (?1, ?2)
ON CONFLICT (id) DO UPDATE SET lease = ?2, departed = departed AND ?2 IS NULL
