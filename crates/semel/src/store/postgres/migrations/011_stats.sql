-- Figures of workspaces, as JSON: by the minute for some days, by the hour (span 60) for longer. Each process that has the
-- store open writes rows of its own. Minutes are counted from 1970.
CREATE TABLE stats (
    workspace uuid NOT NULL,
    span bigint NOT NULL,
    minute bigint NOT NULL,
    server uuid NOT NULL,
    body text NOT NULL,
    workflows text NOT NULL,
    PRIMARY KEY (workspace, span, minute, server)
);
CREATE INDEX stats_old ON stats (span, minute);
