-- Ends the lease of a node that leaves in order: its runs do not count as those of a node that died.
INSERT INTO nodes (id, lease, departed)
VALUES (?1, NULL, 1)
ON CONFLICT (id) DO UPDATE SET lease = NULL, departed = 1
