-- The time of a statement for many calls, or for one. $1 is the time, if it is not the database's.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
