-- The ledger has one row per commit, only ever appended, and each row names the one before it in its run. What a commit
-- changes in place stands apart in `heads`, two hundred runs to the page. So a commit touches the last page of the ledger
-- and one of the heads, no index, however many entries there are. Times are milliseconds, ids 16 bytes, states the codes
-- of `Status`.

CREATE TABLE meta (
    mark BLOB NOT NULL -- of the latest transaction without a ledger row: tells whether it took place if its COMMIT failed
) STRICT;
INSERT INTO meta VALUES (x'00');

CREATE TABLE runs (
    num INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice: a zombie's commit must not find another run under it
    status INTEGER NOT NULL,
    arrivals INTEGER NOT NULL,
    due INTEGER,
    node BLOB,
    ended INTEGER,
    purge INTEGER,
    holds_key INTEGER NOT NULL,
    ties INTEGER NOT NULL,
    purged INTEGER NOT NULL,
    id BLOB NOT NULL,
    workspace BLOB NOT NULL,
    workflow TEXT NOT NULL,
    workflow_version TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    lineage BLOB NOT NULL,
    parent BLOB,
    keep_history INTEGER NOT NULL,
    keep_key INTEGER NOT NULL,
    created INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_id ON runs (id);
-- The guard of every start: one run holds a key.
CREATE UNIQUE INDEX runs_key ON runs (workspace, scope, key) WHERE holds_key;
-- The only scheduling there is.
CREATE INDEX runs_due ON runs (workspace, workflow, due) WHERE due IS NOT NULL;
CREATE INDEX runs_next ON runs (due) WHERE due IS NOT NULL;
CREATE INDEX runs_node ON runs (node) WHERE node IS NOT NULL;
CREATE INDEX runs_purge ON runs (purge) WHERE purge IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_list ON runs (workspace, num);
-- Sooner or later almost all runs are completed: lookups by state are for the others.
CREATE INDEX runs_status ON runs (workspace, status, num) WHERE status <> 4;

-- The head of each run's ledger: the guard of every commit.
CREATE TABLE heads (
    num INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    last INTEGER, -- the latest row
    first INTEGER, -- the row of its creation
    running INTEGER NOT NULL,
    stalls INTEGER NOT NULL
) STRICT;

CREATE TABLE ledger (
    num INTEGER PRIMARY KEY,
    prev INTEGER, -- the row before it in the same run
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL, -- how many entries come before these
    at INTEGER NOT NULL,
    entries TEXT NOT NULL
) STRICT;

CREATE TABLE inbox (
    run INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    at INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (run, arrival)
) STRICT;

CREATE TABLE hooks (
    workspace BLOB NOT NULL,
    token TEXT NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (workspace, token)
) STRICT;
CREATE INDEX hooks_run ON hooks (run);

CREATE TABLE watchers (
    run INTEGER NOT NULL,
    watcher INTEGER NOT NULL,
    visit TEXT NOT NULL
) STRICT;
CREATE INDEX watchers_run ON watchers (run);

CREATE TABLE calls (
    workspace BLOB NOT NULL,
    scope TEXT NOT NULL,
    id TEXT NOT NULL,
    run INTEGER NOT NULL,
    owner BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    result INTEGER NOT NULL,
    PRIMARY KEY (workspace, scope, id)
) STRICT;
CREATE INDEX calls_run ON calls (run);

CREATE TABLE once (
    workspace BLOB NOT NULL,
    scope TEXT NOT NULL,
    label TEXT NOT NULL,
    owner BLOB NOT NULL,
    fence INTEGER NOT NULL,
    value TEXT,
    expires INTEGER,
    waiters TEXT NOT NULL,
    PRIMARY KEY (workspace, scope, label)
) STRICT;
CREATE INDEX once_held ON once (owner) WHERE value IS NULL;
CREATE INDEX once_expires ON once (expires) WHERE expires IS NOT NULL;

CREATE TABLE receipts (
    run INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    count INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    recent TEXT NOT NULL,
    PRIMARY KEY (run, kind)
) STRICT;

CREATE TABLE nodes (
    id BLOB PRIMARY KEY,
    lease INTEGER -- none: given up for dead
) STRICT;
