-- The duplicates of a workspace are listed, the latest first. A receipt of a run that is gone belongs to no workspace any more.
ALTER TABLE receipts ADD COLUMN workspace BLOB;
UPDATE receipts SET workspace = (SELECT r.workspace FROM runs r WHERE r.num = receipts.run);
CREATE INDEX receipts_last ON receipts (workspace, last, run, kind);
