-- What lists and counts are asked for. A run stands in the index of attention while it is paused, in that of lineages if it has
-- inherited its lineage, in that of lost keys if its key no longer points to it: most runs never write any of these.
ALTER TABLE runs ADD COLUMN attention INTEGER; -- code of `Attention`; none if the run is not paused
-- Runs that are paused now (status 3), by their latest pauses.
UPDATE runs SET attention = (
    WITH RECURSIVE chain (prev, seq, entries) AS (
        SELECT l.prev, l.seq, l.entries FROM heads h JOIN ledger l ON l.num = h.last WHERE h.num = runs.num
        UNION ALL
        SELECT l.prev, l.seq, l.entries FROM chain c JOIN ledger l ON l.num = c.prev
        WHERE c.entries NOT LIKE '%"paused":{"reason":%'
    )
    SELECT CASE
        WHEN json_extract(e.value, '$.paused.reason') = 'inDoubt' THEN 1
        WHEN json_type(e.value, '$.paused.reason.diverged') IS NOT NULL THEN 2
        WHEN json_extract(e.value, '$.paused.reason') = 'poisoned' THEN 3
        ELSE 4
    END
    FROM chain c, json_each(c.entries) e
    WHERE json_type(e.value, '$.paused.reason') IS NOT NULL
    ORDER BY c.seq DESC, e.key DESC LIMIT 1
) WHERE status = 3;
CREATE INDEX runs_attention ON runs (workspace, attention, created) WHERE attention IS NOT NULL;
CREATE INDEX runs_lineage ON runs (workspace, lineage, created) WHERE lineage <> id;
CREATE INDEX runs_lost_key ON runs (workspace, scope, key) WHERE NOT holds_key;
-- Children in the order in which they were created.
DROP INDEX runs_parent;
CREATE INDEX runs_parent ON runs (parent, created) WHERE parent IS NOT NULL;
