CREATE TABLE IF NOT EXISTS fenced_task_idempotency_lock (
    effect_key text PRIMARY KEY,
    run_id     text NOT NULL,
    step       text NOT NULL,
    fence      bigint NOT NULL,
    attempt    bigint NOT NULL,
    outcome    text,            -- JSON; null while open
    created    timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    settled    timestamptz
);
