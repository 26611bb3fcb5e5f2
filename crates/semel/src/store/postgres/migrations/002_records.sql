-- Small documents of the server that uses the store: the version is the guard of their writes.
CREATE TABLE records (
    kind text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    body text NOT NULL,
    at bigint NOT NULL,
    expires bigint,
    PRIMARY KEY (kind, id)
);
CREATE INDEX records_expires ON records (expires) WHERE expires IS NOT NULL;
