-- Where and when a run has opened a hook, for lists of what runs wait for.
ALTER TABLE hooks ADD COLUMN visit TEXT; -- none: reserved by a start
ALTER TABLE hooks ADD COLUMN opened INTEGER NOT NULL DEFAULT 0; -- 0: not known
CREATE TEMP TABLE opened AS
    WITH RECURSIVE chain (run, prev, at, seq, entries) AS (
        SELECT h.num, l.prev, l.at, l.seq, l.entries FROM heads h JOIN ledger l ON l.num = h.last
        WHERE h.num IN (SELECT run FROM hooks)
        UNION ALL
        SELECT c.run, l.prev, l.at, l.seq, l.entries FROM chain c JOIN ledger l ON l.num = c.prev
    )
    SELECT c.run, json_extract(e.value, '$.hookOpened.token') AS token,
        json_extract(e.value, '$.hookOpened.hook') AS visit, max(c.at) AS at
    FROM chain c, json_each(c.entries) e
    WHERE c.entries LIKE '%"hookOpened"%' AND json_type(e.value, '$.hookOpened.token') IS NOT NULL
    GROUP BY 1, 2;
UPDATE hooks SET visit = o.visit, opened = o.at FROM opened o WHERE o.run = hooks.run AND o.token = hooks.token;
DROP TABLE opened;
CREATE INDEX hooks_age ON hooks (workspace, opened, token);
