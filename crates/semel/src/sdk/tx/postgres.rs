//! PostgreSQL, through a pool of deadpool.

use std::fmt;
use std::ops::Deref;

use deadpool_postgres::{ClientWrapper, Object, Pool};

use super::{Dialect, FenceMark, FenceRow, Tx, TxSource};
use crate::fail::Result;

/// A transaction in PostgreSQL, as a body has it: `tx.execute(..)`, `tx.query_one(..)` and so on, as of a
/// `tokio_postgres::Client`.
///
/// ```
/// # #[cfg(feature = "postgres")] mod example {
/// use semel::tx::{PgTx, deadpool_postgres::Pool};
/// use semel::{Ctx, Result};
///
/// async fn debit(tx: &PgTx, cents: i64) -> Result<i64> {
///     let debit = "UPDATE account SET cents = cents - $1 RETURNING cents";
///     Ok(tx.query_one(debit, &[&cents]).await?.try_get(0)?)
/// }
///
/// async fn pay(ctx: Ctx, cents: i64) -> Result<i64> {
///     let pool = ctx.state::<Pool>();
///     ctx.tx("debit", &*pool)
///         .run(async |tx| {
///             let left = debit(&tx, cents).await?;
///             tx.commit(left).await
///         })
///         .await
/// }
/// # }
/// ```
pub type PgTx = Tx<Pool>;

/// A connection with a transaction open. Dropped in the middle it is closed: the server rolls back, and the next user of
/// the pool gets no locks of ours.
pub struct PgOpen(Option<Object>);

impl fmt::Debug for PgOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PgOpen")
    }
}

/// Not to be changed: `Client::transaction` would begin another transaction inside of this one, and commit both.
impl Deref for PgOpen {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.0.as_ref().expect("taken out at its end only")
    }
}

impl Drop for PgOpen {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

impl PgOpen {
    /// Begins a transaction with these statements.
    pub(super) async fn begin(pool: &Pool, how: &str) -> Result<Self> {
        let open = Self(Some(pool.get().await?));
        open.batch_execute(how).await?;
        Ok(open)
    }

    /// Ends the transaction and gives the connection back.
    pub(super) async fn end(mut self, how: &str) -> Result<(), tokio_postgres::Error> {
        self.batch_execute(how).await?;
        self.0 = None;
        Ok(())
    }
}

impl TxSource for Pool {
    type Open = PgOpen;
    type Conn = PgOpen;
    const DIALECT: Dialect = Dialect::Postgres;

    async fn begin(&self) -> Result<PgOpen> {
        PgOpen::begin(self, "BEGIN").await
    }

    async fn script(&self, sql: &str) -> Result<()> {
        Ok(self.get().await?.batch_execute(sql).await?)
    }

    async fn find(open: &mut PgOpen, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        let find = open.prepare_cached(sql).await?;
        let Some(row) = open.query_opt(&find, &[&key]).await? else { return Ok(None) };
        Ok(Some(FenceRow {
            run: row.try_get(0)?,
            fence: row.try_get(1)?,
            attempt: row.try_get(2)?,
            outcome: row.try_get(3)?,
        }))
    }

    async fn put(open: &mut PgOpen, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        let FenceMark { key, run, step, fence, attempt } = mark;
        let put = open.prepare_cached(sql).await?;
        Ok(open.execute(&put, &[key, run, step, fence, attempt, &outcome]).await?)
    }

    async fn commit(open: PgOpen) -> Result<()> {
        Ok(open.end("COMMIT").await?)
    }

    async fn rollback(open: PgOpen) -> Result<()> {
        Ok(open.end("ROLLBACK").await?)
    }

    fn conn(open: &PgOpen) -> &PgOpen {
        open
    }

    fn conn_mut(open: &mut PgOpen) -> &mut PgOpen {
        open
    }
}
