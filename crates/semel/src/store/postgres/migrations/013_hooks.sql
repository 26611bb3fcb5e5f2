-- Where and when a run has opened a hook, for lists of what runs wait for.
ALTER TABLE hooks ADD COLUMN visit text; -- none: reserved by a start
ALTER TABLE hooks ADD COLUMN opened bigint NOT NULL DEFAULT 0; -- 0: not known
UPDATE hooks h SET visit = o.visit, opened = o.at
FROM (
    SELECT DISTINCT ON (l.run, e.value -> 'hookOpened' ->> 'token') l.run,
        e.value -> 'hookOpened' ->> 'token' AS token, e.value -> 'hookOpened' ->> 'hook' AS visit, l.at
    FROM ledger l CROSS JOIN LATERAL json_array_elements(l.entries::json) WITH ORDINALITY AS e (value, place)
    WHERE l.run IN (SELECT run FROM hooks) AND l.entries LIKE '%"hookOpened"%'
        AND e.value -> 'hookOpened' ->> 'token' IS NOT NULL
    ORDER BY l.run, e.value -> 'hookOpened' ->> 'token', l.seq DESC, e.place DESC
) o
WHERE o.run = h.run AND o.token = h.token;
CREATE INDEX hooks_age ON hooks (workspace, opened, token);
