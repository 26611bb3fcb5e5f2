-- Due runs of families of workflow versions (`def1_…`), in all workspaces and of all workflows: a node that hosts a family
-- asks once, however many definitions and workspaces there are. See rules/family.rs.
CREATE INDEX runs_family ON runs (substr(workflow_version, 1, 5), due, num)
    WHERE due IS NOT NULL AND substr(workflow_version, 5, 1) = '_';
