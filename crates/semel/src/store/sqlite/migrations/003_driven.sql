-- A run that is driven stands in one index instead of two, which every start and every end has to write: that of the driven
-- runs, for lists and for finding the runs of a dead node. The others are indexed by their states; sooner
-- or later almost all are completed, and those are not looked up that way.
DROP INDEX runs_node;
DROP INDEX runs_status;
CREATE INDEX runs_driven ON runs (workspace, num, node) WHERE node IS NOT NULL;
CREATE INDEX runs_status ON runs (workspace, status, num) WHERE status <> 4 AND node IS NULL;

-- The head says whether rows elsewhere change when the run ends: 1 if it is running and has no ties, 2 if it has.
UPDATE heads SET running = 2 WHERE running AND num IN (SELECT num FROM runs WHERE ties);
