-- Lists are in the order of creation, and `since` is the end of the stretch of an index that is read. A run stands where it
-- was created for good. By their states stand all but the completed runs: what is open, and what an operator looks for
-- among many completed ones.
DROP INDEX runs_list;
CREATE INDEX runs_list ON runs (workspace, created, num);
CREATE INDEX runs_workflow ON runs (workspace, workflow, created, num);
DROP INDEX runs_rare;
CREATE INDEX runs_status ON runs (workspace, status, created, num) WHERE status <> 4;
