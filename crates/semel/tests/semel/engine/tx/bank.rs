//! An account in every database that transactional steps know, and a tap on the way to it.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use semel::tx::{self, Dialect, FenceMark, FenceRow, TxSource};
use semel::{Fail, Result};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Where one test keeps its account: a folder, and a schema on the server.
pub(crate) struct Place {
    folder: TempDir,
    schema: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static PLACES: AtomicUsize = AtomicUsize::new(0);
        let count = PLACES.fetch_add(1, Ordering::Relaxed);
        let schema = format!("bank_{}_{count}", std::process::id());
        Self { folder: TempDir::new().expect("a folder for the file"), schema }
    }

    /// A fresh account with 1000 cents.
    pub(crate) async fn fresh<S: Bank>(&self) -> Result<S> {
        let bank = S::open(self).await?;
        tx::install(&bank).await?;
        bank.script("CREATE TABLE account (cents bigint)").await?;
        bank.script("CREATE TABLE entry (cents bigint)").await?;
        bank.script("INSERT INTO account VALUES (1000)").await?;
        Ok(bank)
    }
}

/// A database with an account.
pub(crate) trait Bank: TxSource {
    /// Opens it as one process does.
    fn open(place: &Place) -> impl Future<Output = Result<Self>> + Send;
    /// Takes money from the account and writes an entry; gives what is left.
    fn debit(conn: &mut Self::Conn, cents: i64) -> impl Future<Output = Result<i64>> + Send;
    /// Lets the server end the session that a transaction is open on.
    fn die(conn: &mut Self::Conn) -> impl Future<Output = ()> + Send;
    /// How many sessions on this account wait for a row that another transaction has locked.
    const WAITING: &str;
    /// The one number that a query gives.
    fn number(&self, sql: &'static str) -> impl Future<Output = Result<i64>> + Send;

    /// What is left, how many entries there are, and how many outcomes.
    fn state(&self) -> impl Future<Output = Result<(i64, i64, i64)>> + Send {
        async {
            let left = self.number("SELECT cents FROM account").await?;
            let entries = self.number("SELECT count(*) FROM entry").await?;
            let outcomes = "SELECT count(*) FROM fenced_task_idempotency_lock WHERE outcome IS NOT NULL";
            Ok((left, entries, self.number(outcomes).await?))
        }
    }
}

#[cfg(feature = "sqlite")]
impl Bank for tx::SqliteDb {
    async fn open(place: &Place) -> Result<Self> {
        Ok(Self::open(place.folder.path().join("bank.db")).await?)
    }

    async fn debit(conn: &mut tx::SqliteOpen, cents: i64) -> Result<i64> {
        conn.call(move |conn| {
            conn.execute("INSERT INTO entry VALUES (?1)", [cents])?;
            let debit = "UPDATE account SET cents = cents - ?1 RETURNING cents";
            Ok(conn.query_row(debit, [cents], |row| row.get(0))?)
        })
        .await
    }

    async fn die(_: &mut tx::SqliteOpen) {
        unreachable!("there is no session")
    }

    const WAITING: &str = "SELECT 0";

    async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(self.call(move |conn| conn.query_row(sql, [], |row| row.get(0))).await?)
    }
}

#[cfg(feature = "postgres")]
const PG_WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                          AND application_name = current_setting('application_name')";

#[cfg(feature = "postgres")]
mod postgres {
    use semel::tx::PgOpen;
    use semel::tx::deadpool_postgres::{Manager, Pool};
    use semel::tx::tokio_postgres::{Config, NoTls};

    use super::{Bank, Place, Result};

    pub(super) fn url() -> String {
        std::env::var("SEMEL_TEST_POSTGRES").expect("main has seen to it that there is a server")
    }

    impl Bank for Pool {
        async fn open(place: &Place) -> Result<Self> {
            let mut config: Config = url().parse()?;
            config.options(format!("-c search_path={}", place.schema)).application_name(&place.schema);
            let pool = Pool::builder(Manager::new(config, NoTls)).max_size(8).build()?;
            pool.get().await?.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {}", place.schema)).await?;
            Ok(pool)
        }

        async fn debit(conn: &mut PgOpen, cents: i64) -> Result<i64> {
            conn.execute("INSERT INTO entry VALUES ($1)", &[&cents]).await?;
            let debit = "UPDATE account SET cents = cents - $1 RETURNING cents";
            Ok(conn.query_one(debit, &[&cents]).await?.try_get(0)?)
        }

        async fn die(conn: &mut PgOpen) {
            let died = conn.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())").await;
            died.expect_err("it has no answer");
        }

        const WAITING: &str = super::PG_WAITING;

        async fn number(&self, sql: &'static str) -> Result<i64> {
            Ok(self.get().await?.query_one(sql, &[]).await?.try_get(0)?)
        }
    }
}

#[cfg(all(feature = "sqlx-postgres", feature = "postgres"))]
impl Bank for tx::sqlx::PgPool {
    async fn open(place: &Place) -> Result<Self> {
        use tx::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
        let options: PgConnectOptions = postgres::url().parse()?;
        let options = options.options([("search_path", &place.schema)]).application_name(&place.schema);
        let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
        TxSource::script(&pool, &format!("CREATE SCHEMA IF NOT EXISTS {}", place.schema)).await?;
        Ok(pool)
    }

    async fn debit(conn: &mut tx::sqlx::PgConnection, cents: i64) -> Result<i64> {
        use tx::sqlx::{query, query_scalar};
        query("INSERT INTO entry VALUES ($1)").bind(cents).execute(&mut *conn).await?;
        let debit = "UPDATE account SET cents = cents - $1 RETURNING cents";
        Ok(query_scalar(debit).bind(cents).fetch_one(conn).await?)
    }

    async fn die(conn: &mut tx::sqlx::PgConnection) {
        let died = tx::sqlx::query("SELECT pg_terminate_backend(pg_backend_pid())").execute(conn).await;
        died.expect_err("it has no answer");
    }

    const WAITING: &str = PG_WAITING;

    async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(tx::sqlx::query_scalar(sql).fetch_one(self).await?)
    }
}

#[cfg(feature = "sqlx-sqlite")]
impl Bank for tx::sqlx::SqlitePool {
    async fn open(place: &Place) -> Result<Self> {
        use tx::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
        let options = SqliteConnectOptions::new().filename(place.folder.path().join("bank.db"));
        let options = options.create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        Ok(Self::connect_with(options).await?)
    }

    async fn debit(conn: &mut tx::sqlx::SqliteConnection, cents: i64) -> Result<i64> {
        use tx::sqlx::{query, query_scalar};
        query("INSERT INTO entry VALUES (?1)").bind(cents).execute(&mut *conn).await?;
        let debit = "UPDATE account SET cents = cents - ?1 RETURNING cents";
        Ok(query_scalar(debit).bind(cents).fetch_one(conn).await?)
    }

    async fn die(_: &mut tx::sqlx::SqliteConnection) {
        unreachable!("there is no session")
    }

    const WAITING: &str = "SELECT 0";

    async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(tx::sqlx::query_scalar(sql).fetch_one(self).await?)
    }
}

#[cfg(feature = "sqlx-mysql")]
impl Bank for tx::sqlx::MySqlPool {
    async fn open(place: &Place) -> Result<Self> {
        use tx::sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
        let url = std::env::var("SEMEL_TEST_MARIADB").expect("main has seen to it that there is a server");
        let options: MySqlConnectOptions = url.parse()?;
        let all = Self::connect_with(options.clone()).await?;
        TxSource::script(&all, &format!("CREATE DATABASE IF NOT EXISTS {}", place.schema)).await?;
        all.close().await;
        Ok(MySqlPoolOptions::new().max_connections(8).connect_with(options.database(&place.schema)).await?)
    }

    async fn debit(conn: &mut tx::sqlx::MySqlConnection, cents: i64) -> Result<i64> {
        use tx::sqlx::{query, query_scalar};
        query("INSERT INTO entry VALUES (?)").bind(cents).execute(&mut *conn).await?;
        query("UPDATE account SET cents = cents - ?").bind(cents).execute(&mut *conn).await?;
        Ok(query_scalar("SELECT cents FROM account").fetch_one(conn).await?)
    }

    async fn die(conn: &mut tx::sqlx::MySqlConnection) {
        let died = tx::sqlx::raw_sql("KILL CONNECTION_ID()").execute(conn).await;
        died.expect_err("it has no answer");
    }

    // The table of lock waits shows a copy for as long as it is asked for more often than ten times in a second.
    const WAITING: &str = "SELECT count(*) FROM information_schema.processlist WHERE db = database() \
                           AND state = 'Update' AND info LIKE 'INSERT INTO fenced%' AND time_ms > 20";

    async fn number(&self, sql: &'static str) -> Result<i64> {
        Ok(tx::sqlx::query_scalar(sql).fetch_one(self).await?)
    }
}

/// When a COMMIT whose answer is lost takes place.
#[derive(Clone)]
pub(crate) enum Cut {
    /// It does not take place.
    Before,
    /// It has taken place.
    After,
    /// It takes place when it is let go.
    Later(Arc<Notify>),
    /// The same, and there is no answer at all, not even that it is lost.
    Silent(Arc<Notify>),
    /// It never takes place, and there is no answer: the transaction stays open, with all that it has locked.
    Abandoned,
    /// The server ends the session just before.
    Died,
}

/// A proxy before a database that watches messages and interferes.
#[derive(Default)]
pub(crate) struct Tap {
    /// Cuts the next commit that has an outcome.
    pub(crate) cut: Mutex<Option<Cut>>,
    /// Beginnings wait for it.
    pub(crate) hold: Option<Notify>,
    /// The beginning of this number has no answer.
    pub(crate) deaf: Option<u32>,
    /// Told when there was none.
    pub(crate) deafened: Notify,
    /// How many have begun.
    pub(crate) begun: AtomicU32,
    /// Told when a connection sends BEGIN.
    pub(crate) begins: Notify,
    /// Told when a transaction is over.
    pub(crate) ends: Notify,
}

/// A database with a tap on the way to it.
#[derive(Clone)]
pub(crate) struct Tapped<S> {
    bank: S,
    tap: Arc<Tap>,
}

impl<S: Bank> Tapped<S> {
    pub(crate) fn new(bank: &S, tap: &Arc<Tap>) -> Self {
        Self { bank: bank.clone(), tap: tap.clone() }
    }

    async fn commit_later(open: S::Open, go: Arc<Notify>) {
        go.notified().await;
        S::commit(open).await.expect("nothing hinders it");
    }
}

impl<S: Bank> TxSource for Tapped<S> {
    /// A transaction, whose tap it is, and whether it has an outcome.
    type Open = (S::Open, Arc<Tap>, bool);
    type Conn = S::Conn;
    const DIALECT: Dialect = S::DIALECT;

    async fn begin(&self) -> Result<Self::Open> {
        self.tap.begins.notify_one();
        if let Some(hold) = &self.tap.hold {
            hold.notified().await;
            // And the next one may pass too.
            hold.notify_one();
        }
        if self.tap.deaf == Some(self.tap.begun.fetch_add(1, Ordering::SeqCst) + 1) {
            self.tap.deafened.notify_one();
            std::future::pending::<()>().await;
        }
        Ok((TxSource::begin(&self.bank).await?, self.tap.clone(), false))
    }

    async fn script(&self, sql: &str) -> Result<()> {
        self.bank.script(sql).await
    }

    async fn find(open: &mut Self::Open, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        S::find(&mut open.0, sql, key).await
    }

    async fn put(open: &mut Self::Open, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        open.2 = outcome.is_some();
        S::put(&mut open.0, sql, mark, outcome).await
    }

    async fn commit((mut open, tap, has_outcome): Self::Open) -> Result<()> {
        let cut = if has_outcome { tap.cut.lock().expect("no test panics with it").take() } else { None };
        match cut {
            None => {
                let committed = S::commit(open).await;
                tap.ends.notify_one();
                return committed;
            }
            Some(Cut::Before) => {
                S::rollback(open).await?;
                tap.ends.notify_one();
            }
            Some(Cut::After) => S::commit(open).await?,
            Some(Cut::Died) => {
                S::die(S::conn_mut(&mut open)).await;
                let answer = S::commit(open).await;
                tap.ends.notify_one();
                return answer;
            }
            Some(Cut::Later(go)) => drop(tokio::spawn(Self::commit_later(open, go))),
            Some(Cut::Silent(go)) => {
                tokio::spawn(Self::commit_later(open, go));
                tap.ends.notify_one();
                std::future::pending::<()>().await;
            }
            Some(Cut::Abandoned) => {
                std::mem::forget(open);
                tap.ends.notify_one();
                std::future::pending::<()>().await;
            }
        }
        Err(Fail::retryable("the answer is lost, on purpose"))
    }

    async fn rollback((open, tap, _): Self::Open) -> Result<()> {
        let rolled_back = S::rollback(open).await;
        tap.ends.notify_one();
        rolled_back
    }

    fn conn(open: &Self::Open) -> &S::Conn {
        S::conn(&open.0)
    }

    fn conn_mut(open: &mut Self::Open) -> &mut S::Conn {
        S::conn_mut(&mut open.0)
    }
}

impl<S: Bank> Bank for Tapped<S> {
    async fn open(place: &Place) -> Result<Self> {
        Ok(Self::new(&S::open(place).await?, &Arc::default()))
    }

    async fn debit(conn: &mut S::Conn, cents: i64) -> Result<i64> {
        S::debit(conn, cents).await
    }

    async fn die(conn: &mut S::Conn) {
        S::die(conn).await;
    }

    const WAITING: &str = S::WAITING;

    async fn number(&self, sql: &'static str) -> Result<i64> {
        self.bank.number(sql).await
    }
}
