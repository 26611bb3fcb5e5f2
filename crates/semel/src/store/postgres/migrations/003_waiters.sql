-- Runs that wait for a `run_once` value have rows of their own: in one shared row, each of them would cost as much as all before.
-- No run may begin to wait between the copy and the end of the column.
LOCK TABLE once IN ACCESS EXCLUSIVE MODE;
CREATE TABLE once_waiters (
    workspace uuid NOT NULL,
    scope text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    run uuid NOT NULL,
    PRIMARY KEY (workspace, scope, label, run)
);
INSERT INTO once_waiters SELECT DISTINCT workspace, scope, label, unnest(waiters) FROM once;
ALTER TABLE once DROP COLUMN waiters;
