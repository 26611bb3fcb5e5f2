-- Figures of workspaces, as JSON: by the minute for some days, by the hour (span 60) for longer. Each process that has the
-- store open writes rows of its own. Minutes are counted from 1970.
CREATE TABLE stats (
    workspace BLOB NOT NULL,
    span INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    server BLOB NOT NULL,
    body TEXT NOT NULL,
    workflows TEXT NOT NULL,
    PRIMARY KEY (workspace, span, minute, server)
) STRICT;
CREATE INDEX stats_old ON stats (span, minute);
