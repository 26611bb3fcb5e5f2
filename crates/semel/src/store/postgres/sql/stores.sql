-- Whether there is a store in the schema $1, and the schema of the store in the search path. The catalogue is asked and not
-- `to_regclass`, which fails without a right to the schema.
SELECT
    EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = 'semel_schema'
    ),
    (
        SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relname = 'semel_schema' AND pg_table_is_visible(c.oid)
    )
