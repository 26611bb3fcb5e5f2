-- Those who wait for a once stand in rows of their own: written into one row, each of them would cost as much as all before.
-- Nobody may come to wait between the copy and the end of the column.
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
