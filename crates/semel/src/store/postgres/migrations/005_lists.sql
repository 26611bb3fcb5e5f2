-- Lists are in the order of creation, and `since` is the end of the stretch of an index that is read. A run keeps the position
-- of its creation. All but the completed runs are indexed by their states: what is open, and what an operator looks for
-- among many completed ones.
DROP INDEX runs_list;
CREATE INDEX runs_list ON runs (workspace, created, num);
CREATE INDEX runs_workflow ON runs (workspace, workflow, created, num);
DROP INDEX runs_rare;
CREATE INDEX runs_status ON runs (workspace, status, created, num) WHERE status <> 4;
