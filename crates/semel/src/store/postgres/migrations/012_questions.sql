-- What lists and counts are asked for. A run stands in the index of attention while it is paused, in that of lineages if it has
-- inherited its lineage, in that of lost keys if its key no longer points to it: most runs never write any of these.
ALTER TABLE runs ADD COLUMN attention smallint; -- code of `Attention`; none if the run is not paused
-- Runs that are paused now (status 3), by their latest pauses.
UPDATE runs r SET attention = (
    SELECT CASE
        WHEN e.value -> 'paused' ->> 'reason' = 'inDoubt' THEN 1
        WHEN e.value -> 'paused' -> 'reason' -> 'diverged' IS NOT NULL THEN 2
        WHEN e.value -> 'paused' ->> 'reason' = 'poisoned' THEN 3
        ELSE 4
    END
    FROM (
        SELECT seq, entries FROM ledger WHERE run = r.num AND entries LIKE '%"paused":{"reason":%'
        ORDER BY seq DESC
    ) l CROSS JOIN LATERAL json_array_elements(l.entries::json) WITH ORDINALITY AS e (value, place)
    WHERE e.value -> 'paused' -> 'reason' IS NOT NULL
    ORDER BY l.seq DESC, e.place DESC LIMIT 1
) WHERE r.status = 3;
CREATE INDEX runs_attention ON runs (workspace, attention, created, num) WHERE attention IS NOT NULL;
CREATE INDEX runs_lineage ON runs (workspace, lineage, created, num) WHERE lineage <> id;
CREATE INDEX runs_lost_key ON runs (workspace, scope, key, num) WHERE NOT holds_key;
-- Children in the order in which they were created.
DROP INDEX runs_parent;
CREATE INDEX runs_parent ON runs (parent, created, num) WHERE parent IS NOT NULL;
