//! Beginning a transaction on a pool of sqlx so that it can be given up at any moment.

use sqlx::{Connection, Database, Pool, Transaction};

use crate::fail::{Fail, Result};

/// Begins a transaction on a pool of sqlx with this statement. Use it instead of [`Pool::begin_with`] wherever the future may
/// be dropped, as those of steps are when a run is taken away or an attempt has no time left: sqlx would put the connection
/// back into the pool with the transaction open, and the pool's next user would write into it without ever committing.
///
/// A transaction that begins after it was given up is rolled back.
pub async fn begin_with<D>(pool: &Pool<D>, statement: &'static str) -> Result<Transaction<'static, D>>
where
    D: Database,
    D::Connection: Connection<Database = D>,
{
    let pool = pool.clone();
    // A task of its own goes on when nothing waits for it any more, and drops what it has begun.
    let begun = tokio::spawn(async move { pool.begin_with(statement).await });
    Ok(begun.await.map_err(Fail::retryable)??)
}
