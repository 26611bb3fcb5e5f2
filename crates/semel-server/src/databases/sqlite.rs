//! Statements in SQLite. Values have the types in which they are stored: there are no truth values, times and decimals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel::error::failure_code;
use semel::tx::rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use semel::tx::rusqlite::types::{Value, ValueRef};
use semel::tx::rusqlite::{Connection, params_from_iter};
use semel::tx::{BranchName, Dialect, FenceMark, FenceRow, SqliteDb, SqliteOpen, TwoPhase, TxSource};
use semel::{Fail, Result, fatal};
use serde_json::Value as Json;

use super::rows::{Cell, RowsWriter};
use super::{Bound, ResultBounds, Spelling, SqlResult, SqlSource};

/// Instructions of SQLite between two looks whether a statement was given up.
const LOOK_EVERY: i32 = 10_000;

/// A file, with a second connection for queries: they do not wait for writers, and cannot write.
#[derive(Clone, Debug)]
pub(crate) struct SqliteFile {
    pub(crate) writer: SqliteDb,
    pub(crate) reader: SqliteDb,
}

impl TxSource for SqliteFile {
    type Open = SqliteOpen;
    type Conn = SqliteOpen;
    const DIALECT: Dialect = Dialect::Sqlite;

    async fn begin(&self) -> Result<SqliteOpen> {
        self.writer.begin().await
    }

    async fn script(&self, sql: &str) -> Result<()> {
        self.writer.script(sql).await
    }

    async fn find(open: &mut SqliteOpen, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        SqliteDb::find(open, sql, key).await
    }

    async fn put(open: &mut SqliteOpen, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        SqliteDb::put(open, sql, mark, outcome).await
    }

    async fn commit(open: SqliteOpen) -> Result<()> {
        SqliteDb::commit(open).await
    }

    async fn rollback(open: SqliteOpen) -> Result<()> {
        SqliteDb::rollback(open).await
    }

    fn conn(open: &SqliteOpen) -> &SqliteOpen {
        open
    }

    fn conn_mut(open: &mut SqliteOpen) -> &mut SqliteOpen {
        open
    }
}

/// It can only be the one database of a transaction.
impl TwoPhase for SqliteFile {
    const PREPARES: bool = SqliteDb::PREPARES;

    async fn begin_branch(&self, name: &BranchName) -> Result<SqliteOpen> {
        self.writer.begin_branch(name).await
    }

    async fn begin_brief(&self) -> Result<SqliteOpen> {
        self.writer.begin_brief().await
    }

    async fn prepare(open: SqliteOpen, name: &BranchName) -> Result<()> {
        SqliteDb::prepare(open, name).await
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        self.writer.prepared().await
    }
}

impl SqlSource for SqliteFile {
    const SPELLING: Spelling = Spelling::Sqlite;

    async fn execute(conn: &mut SqliteOpen, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        let (given_up, bounds) = (GiveUp::default(), bounds.clone());
        let flag = given_up.0.clone();
        conn.call(move |conn| execute(conn, &bound, &bounds, &flag, true)).await
    }

    async fn read(&self, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        let (given_up, bounds) = (GiveUp::default(), bounds.clone());
        let flag = given_up.0.clone();
        self.reader.call(move |conn| Ok(execute(conn, &bound, &bounds, &flag, false))).await?
    }
}

/// Ends a statement when the step that waits for it is dropped: SQLite works on a thread of its own.
#[derive(Default)]
struct GiveUp(Arc<AtomicBool>);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn execute(
    conn: &Connection,
    bound: &Bound,
    bounds: &ResultBounds,
    given_up: &Arc<AtomicBool>,
    writes: bool,
) -> Result<SqlResult> {
    let flag = given_up.clone();
    conn.progress_handler(LOOK_EVERY, Some(move || flag.load(Ordering::Relaxed)))?;
    conn.authorizer(Some(allowed))?;
    let executed = statement(conn, bound, bounds, writes);
    conn.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    conn.progress_handler(0, None::<fn() -> bool>)?;
    executed
}

fn statement(conn: &Connection, bound: &Bound, bounds: &ResultBounds, writes: bool) -> Result<SqlResult> {
    let mut prepared = conn.prepare(&bound.text)?;
    let values = bound.values.iter().map(value).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = prepared.column_names().into_iter().map(str::to_owned).collect();
    let mut written = RowsWriter::new(names.iter().map(String::as_str), bounds)?;
    let before = conn.total_changes();
    let reads = prepared.readonly();
    let mut rows = prepared.query(params_from_iter(values))?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        count += 1;
        written.add((0..names.len()).map(|index| Ok::<_, Fail>(cell(row.get_ref(index)?))))?;
    }
    drop(rows);
    // What triggers have changed does not count, as in other databases.
    let changed = if conn.total_changes() == before { 0 } else { conn.changes() };
    let affected = if reads { count } else { changed };
    written.finish(writes.then_some(affected))
}

/// A statement stays in its file: it attaches no other, and manages neither the session nor the transaction.
fn allowed(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. } => Authorization::Deny,
        AuthAction::Function { function_name } if function_name.eq_ignore_ascii_case("load_extension") => {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

fn value(value: &Json) -> Result<Value> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Integer((*value).into()),
        Json::String(text) => Value::Text(text.clone()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(integer),
            (None, Some(double)) if number.is_f64() => Value::Real(double),
            _ => {
                let why = format!("{number} is larger than an integer of SQLite; give it as a text");
                return Err(fatal(why).with_code(failure_code::SQL));
            }
        },
        Json::Array(_) | Json::Object(_) => Value::Text(value.to_string()),
    })
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(integer) => Cell::integer(integer),
        ValueRef::Real(double) => Cell::double(double),
        // A character 0 cannot be kept in a ledger.
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).replace('\0', "\u{fffd}")),
        ValueRef::Blob(bytes) => Cell::bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn executed(text: &str, values: &[Json]) -> Result<String> {
        let conn = Connection::open_in_memory()?;
        conn.execute_batch("CREATE TABLE a (b, c); INSERT INTO a VALUES (1, 'x'), (2, NULL)")?;
        let bound = Bound { text: text.to_owned(), values: values.to_vec() };
        let bounds = ResultBounds { bytes: 10_000, redactor: Arc::default() };
        Ok(execute(&conn, &bound, &bounds, &Arc::default(), true)?.value.text().to_owned())
    }

    #[test]
    fn rows_that_are_written_are_counted() {
        for (text, value) in [
            ("UPDATE a SET b = b + 1", r#"{"affected":2,"rows":[]}"#),
            ("DELETE FROM a WHERE b = ?1 RETURNING b, c", r#"{"affected":1,"rows":[{"b":2,"c":null}]}"#),
            ("UPDATE a SET b = 0 WHERE b > 7", r#"{"affected":0,"rows":[]}"#),
            ("SELECT b FROM a WHERE b = ?1", r#"{"affected":1,"rows":[{"b":2}]}"#),
            ("INSERT INTO a SELECT b, c FROM a", r#"{"affected":2,"rows":[]}"#),
        ] {
            assert_eq!(
                executed(text, &[json!(2)][..usize::from(text.contains('?'))]).unwrap(),
                value,
                "{text}"
            );
        }
    }

    #[test]
    fn a_statement_stays_in_its_file() {
        for text in [
            "ATTACH 'other.db' AS other",
            "PRAGMA query_only = 0",
            "SELECT * FROM pragma_database_list",
            "COMMIT",
            "SAVEPOINT a",
            "VACUUM INTO 'copy.db'",
            "SELECT load_extension('x')",
        ] {
            assert!(executed(text, &[]).is_err(), "{text}");
        }
    }

    #[test]
    fn a_statement_that_is_given_up_ends() {
        let conn = Connection::open_in_memory().unwrap();
        let text =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) AS c FROM n";
        let bound = Bound { text: text.to_owned(), values: Vec::new() };
        let bounds = ResultBounds { bytes: 10_000, redactor: Arc::default() };
        let given_up = GiveUp::default();
        let flag = given_up.0.clone();
        drop(given_up);
        assert!(
            execute(&conn, &bound, &bounds, &flag, false).unwrap_err().to_string().contains("interrupted")
        );
    }
}
