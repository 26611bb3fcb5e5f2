//! What an order works with: the shop's own database and the provider.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use semel::clock::Clock;
use semel::tx::rusqlite::{self, OptionalExtension as _};
use semel::tx::{self, SqliteDb, Tx, TxSource};
use semel::{Result, fatal};

use super::provider::Wire;

/// What the shop's account holds at first, in cents.
pub const OPENING: i64 = 1_000_000_000_000;

/// The tables of a shop. They do not forbid to debit an order twice: it must not happen, and if it did, the audit must
/// see it.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS debits (order_name TEXT NOT NULL, cents INTEGER NOT NULL) STRICT;";

/// What an order works with. Its workflow finds it as state of the engine.
pub struct Shop<T> {
    pub(super) till: T,
    pub(super) provider: Wire,
    pub(super) clock: Arc<dyn Clock>,
}

impl<T> fmt::Debug for Shop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shop")
    }
}

impl Shop<SqliteDb> {
    /// Opens the shop's database, and makes it if it is not there.
    pub(super) async fn open(path: &Path, provider: Wire, clock: Arc<dyn Clock>) -> Result<Self> {
        let till = SqliteDb::open(path).await?;
        tx::install(&till).await?;
        till.call(|conn| prepare(conn)).await?;
        Ok(Self { till, provider, clock })
    }
}

/// Makes the tables, and opens the account if it is not there.
pub(super) fn prepare(conn: &rusqlite::Connection) -> rusqlite::Result<()> {
    conn.execute_batch(TABLES)?;
    conn.execute("INSERT INTO account VALUES ('shop', ?1) ON CONFLICT DO NOTHING", [OPENING])?;
    Ok(())
}

/// Debits the account; gives what is left. To be called in a transaction.
pub(super) fn debit(conn: &rusqlite::Connection, order: &str, cents: u64) -> Result<i64> {
    let take = "UPDATE account SET cents = cents - ?1 WHERE name = 'shop' AND cents >= ?1 RETURNING cents";
    let left = conn.query_row(take, [cents as i64], |row| row.get(0)).optional()?;
    let left = left.ok_or_else(|| fatal("the shop's account does not hold that much"))?;
    conn.execute("INSERT INTO debits VALUES (?1, ?2)", rusqlite::params![order, cents as i64])?;
    Ok(left)
}

/// A database that holds the shop's account.
pub trait Till: TxSource {
    /// Debits an order in an open transaction; gives what is left.
    fn debit(tx: &mut Tx<Self>, order: &str, cents: u64) -> impl Future<Output = Result<i64>> + Send;
}

impl Till for SqliteDb {
    async fn debit(tx: &mut Tx<Self>, order: &str, cents: u64) -> Result<i64> {
        let order = order.to_owned();
        tx.call(move |conn| debit(conn, &order, cents)).await
    }
}
