-- Small documents of the server that uses the store: the version is the guard of their writes.
CREATE TABLE records (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    at INTEGER NOT NULL,
    expires INTEGER,
    PRIMARY KEY (kind, id)
) STRICT;
CREATE INDEX records_expires ON records (expires) WHERE expires IS NOT NULL;
