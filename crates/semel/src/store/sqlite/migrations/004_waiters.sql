-- Runs that wait for a `run_once` value have rows of their own: in one shared row, each of them would cost as much as all before.
CREATE TABLE once_waiters (
    workspace BLOB NOT NULL,
    scope TEXT NOT NULL,
    label TEXT NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (workspace, scope, label, run)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO once_waiters
    SELECT o.workspace, o.scope, o.label, w.value FROM once o, json_each(o.waiters) w;
ALTER TABLE once DROP COLUMN waiters;
