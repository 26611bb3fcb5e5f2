-- The duplicates of a workspace are listed, the latest first. A receipt of a run that is gone belongs to no workspace any more.
ALTER TABLE receipts ADD COLUMN workspace uuid;
UPDATE receipts x SET workspace = r.workspace FROM runs r WHERE r.num = x.run;
CREATE INDEX receipts_last ON receipts (workspace, last, run, kind);
