CREATE TABLE IF NOT EXISTS fenced_task_idempotency_lock (
    effect_key varchar(64) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
    run_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    step       text NOT NULL,
    fence      bigint NOT NULL,
    attempt    bigint NOT NULL,
    outcome    longtext,            -- JSON; null while open
    created    timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    settled    timestamp(6) NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
