-- Nodes of remote workers outlive the process that has the file open; those of the process do not. A node that has left in
-- good order is not to blame on its runs.
ALTER TABLE nodes ADD COLUMN remote INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN departed INTEGER NOT NULL DEFAULT 0;
-- Until now they were counted at every claim, also of nodes that live.
UPDATE heads SET stalls = 0 WHERE stalls <> 0;
