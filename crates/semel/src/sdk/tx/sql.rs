//! The statements of the fence table, written once for all databases.

use crate::error::{Error, Result};

/// The fence table's name, if none is given.
pub const TABLE: &str = "fenced_task_idempotency_lock";

/// The fence table in PostgreSQL, for users who create their tables themselves. [`install`](super::install) does the same.
///
/// ```sql
#[doc = include_str!("postgres.sql")]
/// ```
pub const POSTGRES: &str = include_str!("postgres.sql");

/// The fence table in SQLite, for users who create their tables themselves. [`install`](super::install) does the same.
///
/// ```sql
#[doc = include_str!("sqlite.sql")]
/// ```
pub const SQLITE: &str = include_str!("sqlite.sql");

/// The fence table in MariaDB and MySQL, for users who create their tables themselves. [`install`](super::install) does the
/// same.
///
/// ```sql
#[doc = include_str!("mysql.sql")]
/// ```
pub const MYSQL: &str = include_str!("mysql.sql");

/// Kind of SQL in the statements of the fence table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Statements in PostgreSQL's dialect.
    Postgres,
    /// Statements in SQLite's dialect.
    Sqlite,
    /// Statements in the dialect of MariaDB and MySQL.
    Mysql,
}

impl Dialect {
    /// The statement that makes the fence table.
    pub fn create(self, table: &str) -> Result<String> {
        let script = match self {
            Self::Postgres => POSTGRES,
            Self::Sqlite => SQLITE,
            Self::Mysql => MYSQL,
        };
        Ok(script.replace(TABLE, checked(table)?))
    }

    /// The fence for SQL of your own, in a step that is not transactional: a statement to begin a transaction with. Its
    /// parameters are the effect key, the run's id and the fence ([`Attempt::key`], [`Attempt::run_id`],
    /// [`Attempt::fence`]). If it touches no row, a later owner of the run has been here: roll back.
    ///
    /// In the dialect of MariaDB and MySQL these are two statements, divided by a semicolon, because an upsert has no condition
    /// there. The first takes key, run and fence; the second takes run, fence, key, run and fence, and says how many rows it has
    /// found: 0 means roll back (with `CLIENT_FOUND_ROWS`, as sqlx has it).
    ///
    /// ```
    /// use semel::tx::{Dialect, TABLE};
    ///
    /// # fn main() -> Result<(), semel::Error> {
    /// let fence = Dialect::Postgres.fence(TABLE)?;
    /// // BEGIN
    /// // client.execute(&fence, &[&attempt.key(), &attempt.run_id().to_string(), &(attempt.fence() as i64)])
    /// // 0 rows: ROLLBACK, else your statements, COMMIT
    /// # assert!(fence.starts_with("INSERT INTO fenced_task_idempotency_lock"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Attempt::key`]: crate::Attempt::key
    /// [`Attempt::run_id`]: crate::Attempt::run_id
    /// [`Attempt::fence`]: crate::Attempt::fence
    pub fn fence(self, table: &str) -> Result<String> {
        if self == Self::Mysql {
            let table = checked(table)?;
            return Ok(format!(
                "INSERT INTO {table} (effect_key, run_id, step, fence, attempt) VALUES (?, ?, '', ?, 0) \
                 ON DUPLICATE KEY UPDATE effect_key = effect_key; \
                 UPDATE {table} SET run_id = ?, fence = ?, attempt = 0 \
                 WHERE effect_key = ? AND outcome IS NULL AND (run_id <> ? OR (fence, attempt) <= (?, 0))"
            ));
        }
        let [key, run, fence] = [1, 2, 3].map(|n| self.place(n));
        Ok(upsert(checked(table)?, &format!("{key}, {run}, '', {fence}, 0, NULL, NULL")))
    }

    /// Reads what stands under an effect key: run, fence, attempt, outcome.
    pub(super) fn find(self, table: &str) -> Result<String> {
        let (table, key) = (checked(table)?, self.place(1));
        Ok(format!("SELECT run_id, fence, attempt, outcome FROM {table} WHERE effect_key = {key}"))
    }

    /// Puts a mark under its effect key, with an outcome or without, unless a later attempt has been there.
    /// Parameters: key, run, step, fence, attempt, outcome.
    pub(super) fn put(self, table: &str) -> Result<String> {
        if self == Self::Mysql {
            return Ok(put_in_two(checked(table)?));
        }
        let [key, run, step, fence, attempt, outcome] = [1, 2, 3, 4, 5, 6].map(|n| self.place(n));
        // The cast tells PostgreSQL what a parameter is that is only compared with null.
        let outcome = format!("CAST({outcome} AS text)");
        let settled = format!("CASE WHEN {outcome} IS NULL THEN NULL ELSE CURRENT_TIMESTAMP END");
        let step = match self {
            Self::Postgres => within(LEFT_ALONE, &step),
            Self::Sqlite | Self::Mysql => step,
        };
        Ok(upsert(
            checked(table)?,
            &format!("{key}, {run}, {step}, {fence}, {attempt}, {outcome}, {settled}"),
        ))
    }

    fn place(self, n: u8) -> String {
        match self {
            Self::Postgres => format!("${n}"),
            Self::Sqlite => format!("?{n}"),
            Self::Mysql => "?".to_owned(),
        }
    }
}

/// How long PostgreSQL waits for the COMMIT after a mark was put. A client that vanishes in between would keep the mark's
/// row locked, and block all later attempts, until TCP notices: two hours, often.
const LEFT_ALONE: &str = "10s";

/// A value, and on the way the limit of how long the transaction may be left alone from here on, unless the session has one
/// of its own. A statement for that alone would be one more way to the database and back.
fn within(limit: &str, value: &str) -> String {
    const SETTING: &str = "'idle_in_transaction_session_timeout'";
    format!(
        "CASE WHEN current_setting({SETTING}) = '0' AND set_config({SETTING}, '{limit}', true) IS NULL THEN '' \
         ELSE {value} END"
    )
}

/// The guard of every write, the same rule as [`decide`](crate::rules::fence::decide): an outcome is never changed, and
/// no earlier try of a run writes over a later one. The database judges the row as it is at that moment: it waits for a
/// transaction that is about to commit the same row.
fn upsert(table: &str, values: &str) -> String {
    format!(
        "INSERT INTO {table} AS held (effect_key, run_id, step, fence, attempt, outcome, settled) VALUES ({values}) \
         ON CONFLICT (effect_key) DO UPDATE SET run_id = excluded.run_id, step = excluded.step, \
         fence = excluded.fence, attempt = excluded.attempt, outcome = excluded.outcome, settled = excluded.settled \
         WHERE held.outcome IS NULL AND (held.run_id <> excluded.run_id \
         OR held.fence < excluded.fence \
         OR (held.fence = excluded.fence AND held.attempt <= excluded.attempt))"
    )
}

/// The same in MariaDB and MySQL, where an upsert has no condition. The first statement makes the row, or waits for the one
/// that is there, and locks it: no other transaction writes it between the two.
fn put_in_two(table: &str) -> String {
    format!(
        "INSERT INTO {table} (effect_key, run_id, step, fence, attempt) VALUES (?, ?, ?, ?, ?) \
         ON DUPLICATE KEY UPDATE effect_key = effect_key; \
         UPDATE {table} SET run_id = ?, step = ?, fence = ?, attempt = ?, outcome = ?, \
         settled = IF(? IS NULL, NULL, CURRENT_TIMESTAMP(6)) \
         WHERE effect_key = ? AND outcome IS NULL AND (run_id <> ? OR (fence, attempt) <= (?, ?))"
    )
}

/// A table's name, perhaps with its schema: it is put into statements as it is.
fn checked(table: &str) -> Result<&str> {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if table.split('.').count() <= 2 && table.split('.').all(plain) {
        return Ok(table);
    }
    Err(Error::Validation(format!(
        "{table:?} is no name for a fence table: give letters, digits and _, perhaps with a schema and a dot"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_may_have_a_schema_and_nothing_else() {
        for valid in ["fenced_task_idempotency_lock", "billing.Locks2", "_x"] {
            assert_eq!(checked(valid).unwrap(), valid);
        }
        for bad in ["", "a b", "a;drop", "a.b.c", ".a", "a.", "1a", "a\"b", "ä"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        assert!(Dialect::Sqlite.create("mine").unwrap().starts_with("CREATE TABLE IF NOT EXISTS mine ("));
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        why: String,
        given: Given,
        expected: Statements,
    }

    #[derive(serde::Deserialize)]
    struct Given {
        dialect: String,
        table: String,
    }

    #[derive(serde::Deserialize, Debug, PartialEq)]
    struct Statements {
        create: String,
        find: String,
        put: String,
        fence: String,
    }

    /// A script on one line, without comments.
    fn on_one_line(script: &str) -> String {
        let lines = script.lines().map(|line| line.split("--").next().unwrap_or_default());
        let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        words.replace("( ", "(").replace(" )", ")").trim_end_matches(';').to_owned()
    }

    /// The SDKs write the same table, perhaps for the same run: they read the same file.
    #[test]
    fn the_statements_are_those_of_the_golden_vectors() {
        let vectors: Vec<Vector> =
            serde_json::from_str(include_str!("../../../../../vectors/fence.json")).unwrap();
        for Vector { why, given: Given { dialect, table }, expected } in vectors {
            let dialect = match dialect.as_str() {
                "postgres" => Dialect::Postgres,
                "sqlite" => Dialect::Sqlite,
                "mysql" => Dialect::Mysql,
                other => panic!("{other} is no dialect"),
            };
            let found = Statements {
                create: on_one_line(&dialect.create(&table).unwrap()),
                find: dialect.find(&table).unwrap(),
                put: dialect.put(&table).unwrap(),
                fence: dialect.fence(&table).unwrap(),
            };
            assert_eq!(found, expected, "{why}");
        }
    }
}
