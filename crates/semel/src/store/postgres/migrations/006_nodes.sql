-- A node that has left in good order is not to blame on its runs.
ALTER TABLE nodes ADD COLUMN departed boolean NOT NULL DEFAULT false;
-- Until now they were counted at every claim, also of nodes that live.
UPDATE runs SET stalls = 0 WHERE stalls <> 0;
