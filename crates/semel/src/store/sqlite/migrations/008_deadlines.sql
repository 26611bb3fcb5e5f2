-- When the time of a run is up, so that the sweep finds it without its ledger: only runs that have a limit, are open and not
-- paused (status 0 PENDING, 1 RUNNING, 2 WAITING) stand in the index.
ALTER TABLE runs ADD COLUMN deadline INTEGER;
CREATE INDEX runs_deadline ON runs (deadline) WHERE deadline IS NOT NULL AND status < 3;
-- What open runs of earlier versions were created with, or restarted with last.
UPDATE runs SET deadline = (
    SELECT json_extract(l.entries, '$[0].created.deadline')
    FROM heads h JOIN ledger l ON l.num = h.first WHERE h.num = runs.num
) WHERE status < 4;
UPDATE runs SET deadline = coalesce((
    WITH RECURSIVE chain (num, prev, seq, entries) AS (
        SELECT l.num, l.prev, l.seq, l.entries FROM heads h JOIN ledger l ON l.num = h.last WHERE h.num = runs.num
        UNION ALL
        SELECT l.num, l.prev, l.seq, l.entries FROM chain c JOIN ledger l ON l.num = c.prev
    )
    SELECT json_extract(e.value, '$.restarted.deadline') FROM chain c, json_each(c.entries) e
    WHERE c.entries LIKE '%"restarted"%' AND json_extract(e.value, '$.restarted.deadline') IS NOT NULL
    ORDER BY c.seq DESC, e.key DESC LIMIT 1
), deadline) WHERE deadline IS NOT NULL;
