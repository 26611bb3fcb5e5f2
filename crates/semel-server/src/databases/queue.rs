//! `semel_queue`: messages as rows beside the user's own, so that both are committed together. Consumers take them out with SQL.

use semel::tx::Dialect;
use serde_json::{Value as Json, json};

use super::Bound;

/// Name of the table.
pub(crate) const QUEUE: &str = "semel_queue";

/// The statement that makes the table.
pub(crate) fn create(dialect: Dialect) -> String {
    // `number` is the order in which consumers take messages; it has gaps. The text of `data` stays as it was, digit by digit.
    match dialect {
        Dialect::Postgres => format!(
            "CREATE TABLE IF NOT EXISTS {QUEUE} (\n    id      text PRIMARY KEY,\n    number  bigint GENERATED ALWAYS AS IDENTITY UNIQUE,\n    \
             subject text NOT NULL,\n    data    json NOT NULL,\n    created timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP\n)"
        ),
        Dialect::Sqlite => format!(
            "CREATE TABLE IF NOT EXISTS {QUEUE} (\n    number  integer PRIMARY KEY AUTOINCREMENT,\n    id      text NOT NULL UNIQUE,\n    \
             subject text NOT NULL,\n    data    text NOT NULL,\n    created text NOT NULL DEFAULT CURRENT_TIMESTAMP\n)"
        ),
        Dialect::Mysql => format!(
            "CREATE TABLE IF NOT EXISTS {QUEUE} (\n    number  bigint AUTO_INCREMENT PRIMARY KEY,\n    id      varchar(64) NOT NULL UNIQUE,\n    \
             subject varchar(255) NOT NULL,\n    data    longtext NOT NULL,\n    created timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)\n) \
             ENGINE = InnoDB CHARACTER SET utf8mb4"
        ),
    }
}

/// How the transaction of a message is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitWay {
    /// By itself, with its own COMMIT.
    Alone,
    /// Prepared, and with those of other databases. PostgreSQL refuses to prepare a transaction that tells listeners.
    WithOthers,
}

/// Puts a message into the table, and tells listeners of PostgreSQL (`LISTEN semel_queue`) when it is committed, if it is committed
/// alone. A message whose id is there already stays as it is.
pub(crate) fn put(dialect: Dialect, way: CommitWay, id: &str, subject: &str, data: &Json) -> Bound {
    let values = [json!(id), json!(subject)];
    let text = match dialect {
        Dialect::Postgres if way == CommitWay::WithOthers => {
            format!("INSERT INTO {QUEUE} (id, subject, data) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING")
        }
        Dialect::Postgres => format!(
            "WITH message AS (INSERT INTO {QUEUE} (id, subject, data) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING \
             RETURNING id) SELECT pg_notify('{QUEUE}', id) AS told FROM message"
        ),
        Dialect::Sqlite => {
            format!("INSERT INTO {QUEUE} (id, subject, data) VALUES (?1, ?2, ?3) ON CONFLICT (id) DO NOTHING")
        }
        Dialect::Mysql => {
            format!(
                "INSERT INTO {QUEUE} (id, subject, data) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE id = id"
            )
        }
    };
    // PostgreSQL's parameter is of the type json; elsewhere the text is written here.
    let data = if dialect == Dialect::Postgres { data.clone() } else { Json::String(data.to_string()) };
    Bound { text, values: values.into_iter().chain([data]).collect() }
}
