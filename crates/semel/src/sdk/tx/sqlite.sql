CREATE TABLE IF NOT EXISTS fenced_task_idempotency_lock (
    effect_key TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL,
    step       TEXT NOT NULL,
    fence      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    outcome    TEXT,            -- JSON; null while open
    created    TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    settled    TEXT
) WITHOUT ROWID;
