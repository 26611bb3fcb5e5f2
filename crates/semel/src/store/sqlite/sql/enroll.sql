-- Sets the lease of a remote worker's node. Its lease outlives the process that has the file open.
INSERT INTO nodes (id, lease, remote)
VALUES (?1, ?2, 1)
ON CONFLICT (id) DO UPDATE SET lease = ?2, remote = 1, departed = 0
