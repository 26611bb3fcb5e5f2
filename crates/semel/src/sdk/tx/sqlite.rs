//! SQLite, through rusqlite: a handle that works in async code.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Dialect, FenceMark, FenceRow, Tx, TxSource};
use crate::error::Error;
use crate::fail::{Fail, Result, fatal};

/// How long another process may hold the file's lock.
const PATIENCE: Duration = Duration::from_secs(10);

/// A transaction in SQLite, as a body has it: statements go through [`SqliteOpen::call`].
pub type SqliteTx = Tx<SqliteDb>;

/// A SQLite database of yours, for async code. Clones are the same handle.
///
/// It has one connection: SQLite has one writer at a time anyway; callers wait here in order, without blocking a
/// thread. So a body must not use the handle it was begun on ([`SqliteDb::call`]): it would wait for itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), semel::Error> {
/// use semel::tx::SqliteDb;
///
/// let db = SqliteDb::open(":memory:").await?;
/// let two: i64 = db.call(|conn| conn.query_row("SELECT 1 + 1", [], |row| row.get(0))).await?;
/// assert_eq!(two, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteDb(Arc<SqliteDbShared>);

struct SqliteDbShared {
    /// Path under which it can be opened again. None if it is in memory.
    path: Option<PathBuf>,
    idle: Mutex<Option<Connection>>,
    turn: Arc<Semaphore>,
}

impl fmt::Debug for SqliteDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteDb").field(&self.0.path).finish()
    }
}

impl SqliteDb {
    /// Opens a file, and makes it if it is not there. Commits are written to the disk before they are answered: what a
    /// ledger has recorded must not be lost here.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let what = format!("cannot open {}", path.display());
        blocking(move || Ok(Self::new(connect(&path)?))).await.map_err(|fail| fail.of_database(what))
    }

    /// Takes over a connection as it is.
    pub fn new(conn: Connection) -> Self {
        let path = conn.path().filter(|path| !path.is_empty()).map(PathBuf::from);
        Self(Arc::new(SqliteDbShared {
            path,
            idle: Mutex::new(Some(conn)),
            turn: Arc::new(Semaphore::new(1)),
        }))
    }

    /// Executes statements outside of any transaction, except one that they open themselves.
    pub async fn call<T, F>(&self, run: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.on_connection(run).await.map_err(|fail| fail.of_database(self.title()))
    }

    async fn on_connection<T, F>(&self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let mut lent = self.lend().await?;
        blocking(move || Ok(run(lent.conn()?)?)).await
    }

    /// The database as an error names it.
    fn title(&self) -> String {
        let path = self.0.path.as_ref();
        path.map_or_else(|| "the database in memory".to_owned(), |path| path.display().to_string())
    }

    /// Waits for the connection.
    async fn lend(&self) -> Result<Lent> {
        let turn = self.0.turn.clone().acquire_owned().await?;
        let conn = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut lent = Lent { conn, broken: false, db: self.clone(), _turn: turn };
        if lent.conn.is_some() {
            return Ok(lent);
        }
        let path = self.0.path.clone().ok_or_else(|| fatal("a database in memory is gone"))?;
        blocking(move || {
            lent.conn = Some(connect(&path)?);
            Ok(lent)
        })
        .await
    }
}

/// Opens a file as its transactions need it.
fn connect(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(PATIENCE)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "full")?;
    Ok(conn)
}

/// The connection while a caller uses it. When it is given back, an open transaction is rolled back; a broken connection
/// is closed, and the next caller opens a new one.
struct Lent {
    conn: Option<Connection>,
    broken: bool,
    db: SqliteDb,
    _turn: OwnedSemaphorePermit,
}

impl Lent {
    fn conn(&mut self) -> Result<&mut Connection> {
        self.conn.as_mut().ok_or_else(|| fatal("a connection is lent with its database"))
    }

    fn end(&mut self, how: &str) -> Result<()> {
        let ended = self.conn()?.execute_batch(how);
        // If the outcome is unknown, the connection is closed before the next caller uses it.
        self.broken = ended.is_err();
        Ok(ended?)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let dirty = !conn.is_autocommit() && conn.execute_batch("ROLLBACK").is_err();
        if !((dirty || self.broken) && self.db.0.path.is_some()) {
            *self.db.0.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(conn);
        }
    }
}

/// A transaction that is open.
pub struct SqliteOpen(Option<Lent>);

impl fmt::Debug for SqliteOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqliteOpen")
    }
}

impl SqliteOpen {
    /// Executes statements of the transaction, on a thread where they block no other task.
    pub async fn call<T, F>(&mut self, run: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let mut lent = self.take()?;
        let (lent, result) = blocking(move || {
            let result = lent.conn().and_then(|conn| run(conn));
            Ok((lent, result))
        })
        .await?;
        self.0 = Some(lent);
        result
    }

    /// Not there if an earlier call was broken off: it rolls back by itself when its statement is over.
    fn take(&mut self) -> Result<Lent> {
        self.0
            .take()
            .ok_or_else(|| Fail::retryable("a call in this transaction was broken off; it is rolled back"))
    }

    async fn end(mut self, how: &'static str) -> Result<()> {
        let mut lent = self.take()?;
        blocking(move || lent.end(how)).await
    }
}

/// Runs blocking work on a thread for that. A panic continues in the caller.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result,
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(stopped) => Err(stopped.into()),
    }
}

impl TxSource for SqliteDb {
    type Open = SqliteOpen;
    type Conn = SqliteOpen;
    const DIALECT: Dialect = Dialect::Sqlite;

    async fn begin(&self) -> Result<SqliteOpen> {
        let mut lent = self.lend().await?;
        blocking(move || {
            // A transaction that reads first and writes later would be refused as soon as another one has written.
            lent.conn()?.execute_batch("BEGIN IMMEDIATE")?;
            Ok(SqliteOpen(Some(lent)))
        })
        .await
    }

    async fn script(&self, sql: &str) -> Result<()> {
        let sql = sql.to_owned();
        self.on_connection(move |conn| conn.execute_batch(&sql)).await
    }

    async fn find(open: &mut SqliteOpen, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        let (sql, key) = (sql.to_owned(), key.to_owned());
        let held = |row: &rusqlite::Row<'_>| {
            Ok(FenceRow { run: row.get(0)?, fence: row.get(1)?, attempt: row.get(2)?, outcome: row.get(3)? })
        };
        open.call(move |conn| Ok(conn.prepare_cached(&sql)?.query_row([key], held).optional()?)).await
    }

    async fn put(open: &mut SqliteOpen, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        let (sql, mark, outcome) = (sql.to_owned(), mark.clone(), outcome.map(ToOwned::to_owned));
        open.call(move |conn| {
            let FenceMark { key, run, step, fence, attempt } = mark;
            let touched =
                conn.prepare_cached(&sql)?.execute(params![key, run, step, fence, attempt, outcome])?;
            Ok(touched as u64)
        })
        .await
    }

    async fn commit(open: SqliteOpen) -> Result<()> {
        open.end("COMMIT").await
    }

    async fn rollback(open: SqliteOpen) -> Result<()> {
        open.end("ROLLBACK").await
    }

    fn conn(open: &SqliteOpen) -> &SqliteOpen {
        open
    }

    fn conn_mut(open: &mut SqliteOpen) -> &mut SqliteOpen {
        open
    }
}
