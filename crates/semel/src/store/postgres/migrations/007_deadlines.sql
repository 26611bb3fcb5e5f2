-- When the time of a run is up, so that the sweep finds it without its ledger: only runs that have a limit, are open and not
-- paused (status 0 PENDING, 1 RUNNING, 2 WAITING) stand in the index.
ALTER TABLE runs ADD COLUMN deadline bigint;
CREATE INDEX runs_deadline ON runs (deadline, num) WHERE deadline IS NOT NULL AND status < 3;
-- What open runs of earlier versions were created with, or restarted with last.
UPDATE runs r SET deadline = (l.entries::json -> 0 -> 'created' ->> 'deadline')::bigint
FROM ledger l
WHERE r.status < 4 AND l.run = r.num AND l.seq = 0 AND l.entries LIKE '%"deadline"%'
    AND l.entries::json -> 0 -> 'created' ->> 'deadline' IS NOT NULL;
UPDATE runs r SET deadline = coalesce((
    SELECT (e.value -> 'restarted' ->> 'deadline')::bigint
    FROM ledger l CROSS JOIN LATERAL json_array_elements(l.entries::json) WITH ORDINALITY AS e (value, place)
    WHERE l.run = r.num AND l.entries LIKE '%"restarted"%' AND e.value -> 'restarted' ->> 'deadline' IS NOT NULL
    ORDER BY l.seq DESC, e.place DESC LIMIT 1
), r.deadline)
WHERE r.deadline IS NOT NULL;
