-- Lists are in the order of creation, and `since` is the end of the stretch of an index that is read. A run keeps the position
-- of its creation: only its start and the deletion of its row write the first two indexes, no step does.
DROP INDEX runs_list;
CREATE INDEX runs_list ON runs (workspace, created);
CREATE INDEX runs_workflow ON runs (workspace, workflow, created);
DROP INDEX runs_status;
CREATE INDEX runs_status ON runs (workspace, status, created) WHERE status <> 4 AND node IS NULL;
DROP INDEX runs_driven;
CREATE INDEX runs_driven ON runs (workspace, created, num, node) WHERE node IS NOT NULL;
