//! MariaDB and MySQL, through a pool of sqlx.

use std::fmt;

use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, MySql, MySqlConnection, MySqlPool, Row as _, Transaction,
};

use super::{Dialect, FenceMark, FenceRow, TxSource, begin_with};
use crate::fail::{Fail, Result};

/// How a transaction begins. ROLLBACK: what else uses the pool may have given up a call that began one, and left it open on its
/// connection, and the pool does not know. READ COMMITTED: the row of the effect key is read before the body and written after it, and a
/// snapshot from before would hide what was committed in between. The savepoint is gone if the transaction is not the same any
/// more when its outcome is written: DDL in the body commits it, a deadlock rolls it back, and later statements would each be
/// committed alone.
const BEGIN: &str =
    "ROLLBACK; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; SAVEPOINT semel";

/// Executed before the mark is put. A client that vanishes between the mark and its COMMIT would keep the row locked until TCP
/// notices, so MariaDB ends a transaction that is left alone for ten seconds, unless the session has a limit of its own. MySQL
/// has no such limit, and takes this part for a comment.
const SEAL: &str = "RELEASE SAVEPOINT semel; \
    /*M! SET idle_write_transaction_timeout = IF(@@idle_write_transaction_timeout = 0, 10, @@idle_write_transaction_timeout) */";

/// An open transaction in MariaDB or MySQL. Dropped, it is rolled back.
pub struct MySqlOpen(Held);

/// The connection that a transaction is open on.
enum Held {
    /// A connection of the pool, which gets it back.
    Pooled(Transaction<'static, MySql>),
    /// A connection that is closed when the transaction ends.
    Own(Box<MySqlConnection>),
}

impl fmt::Debug for MySqlOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MySqlOpen")
    }
}

impl MySqlOpen {
    /// Begins on a connection of its own, which is taken out of the pool and closed at the end: a branch, or a
    /// transaction with settings that the pool's next user must not have.
    pub(super) async fn alone(pool: &MySqlPool, begin: String) -> Result<Self> {
        let mut conn = Box::new(pool.acquire().await?.detach());
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *conn).await?;
        Ok(Self(Held::Own(conn)))
    }

    /// Closes the connection if it is the transaction's own. That it cannot be closed in good order means that it is closed.
    pub(super) async fn close(self) {
        if let Held::Own(conn) = self.0
            && let Err(error) = conn.close().await
        {
            tracing::debug!(%error, "a connection was closed by its other end");
        }
    }

    fn get(&self) -> &MySqlConnection {
        match &self.0 {
            Held::Pooled(tx) => tx,
            Held::Own(conn) => conn,
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut MySqlConnection {
        match &mut self.0 {
            Held::Pooled(tx) => tx,
            Held::Own(conn) => conn,
        }
    }

    /// Prepares the transaction for its outcome: see [`SEAL`].
    async fn seal(&mut self) -> Result<()> {
        match &mut self.0 {
            // Its session has a limit from its beginning on.
            Held::Own(_) => Ok(()),
            Held::Pooled(tx) => tx.execute(SEAL).await.map(drop).map_err(|error| match error {
                sqlx::Error::Database(error) if error.message().contains("SAVEPOINT") => Fail::retryable(
                    "the transaction was ended inside of the body: by a deadlock whose error was passed over, by COMMIT or \
                     ROLLBACK, or by a statement that commits, such as CREATE TABLE",
                ),
                error => Fail::from(error),
            }),
        }
    }

    async fn end(self, how: &'static str) -> Result<()> {
        match self.0 {
            Held::Pooled(tx) if how == "COMMIT" => Ok(tx.commit().await?),
            Held::Pooled(tx) => Ok(tx.rollback().await?),
            Held::Own(mut conn) => {
                conn.execute(how).await?;
                Self(Held::Own(conn)).close().await;
                Ok(())
            }
        }
    }
}

impl TxSource for MySqlPool {
    type Open = MySqlOpen;
    type Conn = MySqlConnection;
    const DIALECT: Dialect = Dialect::Mysql;

    async fn begin(&self) -> Result<MySqlOpen> {
        Ok(MySqlOpen(Held::Pooled(begin_with(self, BEGIN).await?)))
    }

    async fn script(&self, sql: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(self).await?;
        Ok(())
    }

    async fn find(open: &mut MySqlOpen, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        let row = sqlx::query(AssertSqlSafe(sql)).bind(key).fetch_optional(open.get_mut()).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(FenceRow {
            run: row.try_get(0)?,
            fence: row.try_get(1)?,
            attempt: row.try_get(2)?,
            outcome: row.try_get(3)?,
        }))
    }

    /// Two statements, as upserts have no `WHERE` here: the first makes the row if there is none, and locks it; the second
    /// writes it under the guard.
    async fn put(open: &mut MySqlOpen, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        let FenceMark { key, run, step, fence, attempt } = mark;
        open.seal().await?;
        let (make, write) =
            sql.split_once(';').ok_or_else(|| Fail::retryable("two statements put a mark"))?;
        let make = sqlx::query(AssertSqlSafe(make)).bind(key).bind(run).bind(step).bind(fence).bind(attempt);
        make.execute(open.get_mut()).await?;
        let write = sqlx::query(AssertSqlSafe(write)).bind(run).bind(step).bind(fence).bind(attempt);
        let write = write.bind(outcome).bind(outcome).bind(key).bind(run).bind(fence).bind(attempt);
        // The driver asks for the rows found, not for those that have become another.
        Ok(write.execute(open.get_mut()).await?.rows_affected())
    }

    async fn commit(open: MySqlOpen) -> Result<()> {
        open.end("COMMIT").await
    }

    async fn rollback(open: MySqlOpen) -> Result<()> {
        open.end("ROLLBACK").await
    }

    fn conn(open: &MySqlOpen) -> &MySqlConnection {
        open.get()
    }

    fn conn_mut(open: &mut MySqlOpen) -> &mut MySqlConnection {
        open.get_mut()
    }
}
