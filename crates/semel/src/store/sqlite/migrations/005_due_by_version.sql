-- A node claims the versions of workflows that it has. Those that it has not, however many of their runs are due, are not
-- in the way: each version is a stretch of the index of its own.
DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (workspace, workflow, workflow_version, due) WHERE due IS NOT NULL;
