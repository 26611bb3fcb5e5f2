-- Times are milliseconds since 1970 (UTC), durations milliseconds; the largest number is "for ever".
-- Text that is looked up has COLLATE "C": compared byte by byte, no two keys are "the same" that differ.

-- The header of a run. The update of a step touches version and stalls, a delivery to a running run arrivals: none of
-- them is in an index, so the new row stays on its page (HOT) as long as the page has room, which the fill factor leaves.
CREATE TABLE runs (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL CONSTRAINT runs_id UNIQUE,
    workspace uuid NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    workflow_version text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    lineage uuid NOT NULL,
    parent uuid,
    keep_history bigint NOT NULL,
    keep_key bigint NOT NULL,
    created bigint NOT NULL,
    status smallint NOT NULL,
    version bigint NOT NULL,
    due bigint,
    node uuid,
    stalls integer NOT NULL,
    ended bigint,
    purge bigint,
    holds_key boolean NOT NULL,
    ties boolean NOT NULL,
    arrivals bigint NOT NULL DEFAULT 0,
    purged boolean NOT NULL DEFAULT false
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX runs_key ON runs (workspace, scope, key) WHERE holds_key;
CREATE INDEX runs_due ON runs (workspace, workflow, due, num) WHERE due IS NOT NULL;
CREATE INDEX runs_next ON runs (due) WHERE due IS NOT NULL;
CREATE INDEX runs_node ON runs (node, num) WHERE node IS NOT NULL;
CREATE INDEX runs_purge ON runs (purge, num) WHERE purge IS NOT NULL;
CREATE INDEX runs_parent ON runs (parent, num) WHERE parent IS NOT NULL;
CREATE INDEX runs_list ON runs (workspace, num);
-- PAUSED, FAILED, CANCELLED, TIMED_OUT: what an operator looks for among many completed ones.
CREATE INDEX runs_rare ON runs (workspace, status, num) WHERE status IN (3, 5, 6, 7);

-- One row per commit: the entries after the first `seq` ones.
CREATE TABLE ledger (
    run bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    entries text NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE TABLE inbox (
    run bigint NOT NULL,
    arrival bigint NOT NULL,
    at bigint NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (run, arrival)
);

CREATE TABLE hooks (
    workspace uuid NOT NULL,
    token text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    PRIMARY KEY (workspace, token)
);
CREATE INDEX hooks_run ON hooks (run);

-- `watcher` waits for the end of `run`; told in the order in which they came.
CREATE TABLE watchers (
    run bigint NOT NULL,
    num bigint GENERATED ALWAYS AS IDENTITY,
    watcher bigint NOT NULL,
    visit text NOT NULL,
    PRIMARY KEY (run, num)
);

CREATE TABLE calls (
    workspace uuid NOT NULL,
    scope text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    owner uuid NOT NULL,
    fingerprint bytea NOT NULL,
    result bigint NOT NULL,
    PRIMARY KEY (workspace, scope, id)
);
CREATE INDEX calls_run ON calls (run);

-- A row with fence 0 is only a lock on something that is not there; it never outlives its transaction.
CREATE TABLE once (
    workspace uuid NOT NULL,
    scope text COLLATE "C" NOT NULL,
    label text COLLATE "C" NOT NULL,
    owner uuid NOT NULL,
    fence bigint NOT NULL,
    value text,
    expires bigint,
    waiters uuid[] NOT NULL,
    PRIMARY KEY (workspace, scope, label)
);
CREATE INDEX once_owner ON once (owner) WHERE value IS NULL;
CREATE INDEX once_expires ON once (expires) WHERE expires IS NOT NULL;

CREATE TABLE receipts (
    run bigint NOT NULL,
    kind smallint NOT NULL,
    count bigint NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    recent text NOT NULL,
    PRIMARY KEY (run, kind)
);

-- Without a lease: given up for dead.
CREATE TABLE nodes (
    id uuid PRIMARY KEY,
    lease bigint
);

-- What writing transactions leave that cannot simply be sent again, so that it can be told later whether it took place. One that did not, and now
-- never can, is marked with took = false: its own mark would be the second with this id.
CREATE TABLE marks (
    id uuid PRIMARY KEY,
    at bigint NOT NULL,
    took boolean NOT NULL
);
