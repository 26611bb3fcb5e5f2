//! Transactional steps: the user's rows and the step's outcome in one commit of the user's database, so that the step
//! takes place exactly once.
//!
//! ```
//! # #[cfg(feature = "sqlite")] mod example {
//! use semel::tx::{self, SqliteDb};
//! use semel::{Ctx, Result, fatal};
//!
//! async fn pay(ctx: Ctx, cents: i64) -> Result<i64> {
//!     let db = ctx.state::<SqliteDb>();
//!     ctx.tx("debit", &*db)
//!         .run(async |mut tx| {
//!             let left: Option<i64> = tx
//!                 .call(move |conn| {
//!                     let debit = "UPDATE account SET cents = cents - ?1 WHERE cents >= ?1 RETURNING cents";
//!                     Ok(tx::rusqlite::OptionalExtension::optional(conn.query_row(debit, [cents], |row| row.get(0)))?)
//!                 })
//!                 .await?;
//!             let left = left.ok_or_else(|| fatal("not enough money"))?;
//!             tx.commit(left).await
//!         })
//!         .await
//! }
//!
//! # pub async fn play() -> Result<()> {
//! let db = SqliteDb::open(":memory:").await?;
//! tx::install(&db).await?;
//! # db.call(|conn| conn.execute_batch("CREATE TABLE account (cents INTEGER); INSERT INTO account VALUES (100)")).await?;
//! let engine = semel::Engine::builder().store("memory:").state(db).workflow("pay", pay).open().await?;
//! assert_eq!(engine.start(pay, 30).key("order-7").await?.result().await?, 70);
//! # Ok(())
//! # }
//! # }
//! # #[cfg(feature = "sqlite")] #[tokio::main] async fn main() { example::play().await.unwrap() }
//! # #[cfg(not(feature = "sqlite"))] fn main() {}
//! ```
//!
//! # The fence table
//!
//! The user's database has one more table, [`fenced_task_idempotency_lock`](TABLE), with a row per effect key. [`install`]
//! makes it; so do [`POSTGRES`], [`SQLITE`] and [`MYSQL`] in migrations of your own. It may have another name:
//! [`TxStep::table`], [`install_as`]. [`Tx::commit`] writes key, fence and outcome into it as the transaction's last
//! statement, under a guard: never over an outcome, and never by an earlier owner of the run over a later one. If the
//! guard refuses, all is rolled back. So
//!
//! - after a crash between the two commits the outcome is found there and adopted; the body is not called again;
//! - a zombie, an owner that has lost its run without noticing, cannot commit: the new owner has left its fence there;
//! - a COMMIT whose answer is lost is not guessed about: the table is asked, on another connection, and whatever is still
//!   under way there is waited out.
//!
//! A row may be deleted when its run is over and will not be restarted or forked, for instance 90 days after it was
//! `settled`.
//!
//! # Databases
//!
//! PostgreSQL through deadpool (`PgTx` has an example), SQLite through rusqlite (`SqliteDb`), and both of them, MariaDB and
//! MySQL through sqlx:
//!
//! ```
//! # #[cfg(feature = "sqlx-postgres")] mod example {
//! use semel::tx::sqlx;
//! use semel::{Ctx, Result};
//!
//! async fn pay(ctx: Ctx, cents: i64) -> Result<i64> {
//!     let pool = ctx.state::<sqlx::PgPool>();
//!     ctx.tx("debit", &*pool)
//!         .run(async |mut tx| {
//!             let debit = "UPDATE account SET cents = cents - $1 RETURNING cents";
//!             let left: i64 = sqlx::query_scalar(debit).bind(cents).fetch_one(&mut *tx).await?;
//!             tx.commit(left).await
//!         })
//!         .await
//! }
//! # }
//! ```
//!
//! # Two databases, one commit
//!
//! [`Ctx::tx_all`] is one transaction over several databases, of one kind or of several: all of them commit, or none. A body
//! gives its branch back with [`Branch::ready`], and what is ready everywhere is committed. See the guide *Two databases, one
//! commit* (`docs/two-databases.md`).
//!
//! # What a body should know
//!
//! It must not COMMIT or ROLLBACK by itself; savepoints are fine. It holds a transaction open, so it should not wait for
//! other things meanwhile. Whatever else it does (a call, a file) is not part of the transaction.
//!
//! In MariaDB and MySQL all tables must be InnoDB's: others are not rolled back. Statements that commit by themselves there
//! (`CREATE TABLE`, for instance) are not for a body: the step fails, but what they have committed stays. The same is true of a
//! deadlock whose error a body passes over: the statements after it are each committed alone. Use `?`. Transactions are
//! `READ COMMITTED`.
//!
//! # A database that falls silent
//!
//! A connection may die without notice. Where Semel waits for the database itself, before the body and in
//! [`Tx::commit`], it gives a connection up after 30 seconds and asks on another one. A transaction that has
//! written its outcome and is then left alone is ended by PostgreSQL and MariaDB after 10 seconds, unless the session has an
//! `idle_in_transaction_session_timeout` (MariaDB: `idle_write_transaction_timeout`) of its own: later transactions need not wait until TCP notices. The body's
//! statements are its own: give the step a [`timeout`](TxStep::timeout), and give the pool limits for making
//! and checking connections (deadpool: `timeouts`, sqlx: `acquire_timeout`), so that it does not take as long.
//!
//! SQL of your own in an ordinary step can refuse a zombie too: see [`Dialect::fence`].

mod all;
mod answer;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite", feature = "sqlx-mysql"))]
mod begin;
mod gate;
#[cfg(feature = "sqlx-mysql")]
mod mysql;
mod perform;
#[cfg(feature = "postgres")]
mod postgres;
mod source;
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
mod sqlx_pool;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::all::{Append, Branch, Branches, NoResults, Ready, TwoPhase, TxAll, prepared_branches};
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite", feature = "sqlx-mysql"))]
pub use self::begin::begin_with;
pub use self::source::TxSource;
pub use self::sql::{Dialect, MYSQL, POSTGRES, SQLITE, TABLE};
pub use crate::rules::branch::BranchName;
pub use crate::rules::fence::{FenceMark, FenceRow};

#[cfg(feature = "sqlx-mysql")]
pub use self::mysql::MySqlOpen;
#[cfg(feature = "postgres")]
pub use self::postgres::{PgOpen, PgTx};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteDb, SqliteOpen, SqliteTx};
#[cfg(feature = "postgres")]
pub use crate::store::postgres::PgPoolOptions;

// The versions that these pools are of.
#[cfg(feature = "sqlite")]
pub use ::rusqlite;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite", feature = "sqlx-mysql"))]
pub use ::sqlx;
#[cfg(feature = "postgres")]
pub use {::deadpool_postgres, ::tokio_postgres};

use self::answer::answered;
use self::gate::Gate;
use super::attempt::Attempt;
use super::ctx::{Ctx, Doing};
use super::step::Step;
use crate::error::Error;
use crate::fail::{Fail, Result, fatal};
use crate::rules::entry::Class;
use crate::rules::json::Payload;
use crate::rules::retry::Retry;
use crate::sabotage::{self, Bug};

/// Creates the fence table if it does not exist. Like everything that prepares a database, it answers with
/// [`semel::Error`](crate::Error), so that `?` also works where errors are boxed or `anyhow`'s:
///
/// ```
/// # #[cfg(feature = "sqlite")] mod example {
/// use semel::tx::{self, SqliteDb};
///
/// # #[tokio::main(flavor = "current_thread")] pub
/// async fn main() -> anyhow::Result<()> {
///     let db = SqliteDb::open(":memory:").await?;
///     tx::install(&db).await?;
///     Ok(())
/// }
/// # }
/// # #[cfg(feature = "sqlite")] fn main() { example::main().unwrap() }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub async fn install<S: TxSource>(source: &S) -> Result<(), Error> {
    install_as(source, TABLE).await
}

/// Creates the fence table under another name, optionally with a schema. Name it in every [`TxStep::table`] too.
pub async fn install_as<S: TxSource>(source: &S, table: &str) -> Result<(), Error> {
    let create = S::DIALECT.create(table)?;
    let created = match source.script(&create).await {
        Ok(()) => Ok(()),
        // Of two concurrent CREATE TABLE statements PostgreSQL may refuse one; a moment later the table exists.
        Err(_) => source.script(&create).await,
    };
    created.map_err(|fail| fail.of_database(format!("cannot create the fence table {table}")))
}

impl Ctx {
    /// A step whose effect is a transaction in a database of yours: its rows and its outcome are committed together, so it
    /// takes place exactly once. See [`tx`](crate::tx).
    pub fn tx<'a, S: TxSource>(&self, name: impl Into<String>, source: &'a S) -> TxStep<'a, S> {
        let mut step = self.step(name);
        step.class = Class::Tx;
        TxStep { step, source, table: TABLE.to_owned() }
    }
}

/// A transactional step that has not begun.
#[must_use = "a step begins with `.run(..)`, and is over when that is awaited"]
pub struct TxStep<'a, S> {
    step: Step,
    source: &'a S,
    table: String,
}

impl<S> fmt::Debug for TxStep<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)
    }
}

impl<'a, S: TxSource> TxStep<'a, S> {
    fn with(self, change: impl FnOnce(Step) -> Step) -> Self {
        Self { step: change(self.step), ..self }
    }

    /// Tells this step from others of the same name: its path is `name[key]`.
    pub fn key(self, key: impl fmt::Display) -> Self {
        self.with(|step| step.key(key))
    }

    /// Counts the visits of this step: the second one is `name#2`.
    pub fn indexed(self) -> Self {
        self.with(Step::indexed)
    }

    /// How it is tried again. Three times, if nothing is said.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|step| step.retry(retry))
    }

    /// How long one try may take. If it is about to commit then, the fence table says whether it did.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|step| step.timeout(timeout))
    }

    /// The name of the fence table, if it is not [`TABLE`].
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Runs it: the body is called for each try, with a transaction that is open, until one has committed. A body that
    /// fails, panics or takes too long is rolled back, and tried again as the step says.
    ///
    /// What it gives back is what [`Tx::commit`] gave to it. A body that forgets to commit does not compile:
    ///
    /// ```compile_fail
    /// # use semel::{Ctx, Result, tx::SqliteDb};
    /// # async fn forgetful(ctx: Ctx, db: SqliteDb) -> Result<i64> {
    /// ctx.tx("debit", &db).run(async |mut tx| { tx.call(|_| Ok(())).await?; Ok(7) }).await
    /// # }
    /// ```
    pub fn run<T, B, Fut>(self, body: B) -> Doing<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Tx<S>) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Committed<T>>> + Send + 'a,
    {
        Doing::new(perform::perform(self, body))
    }
}

/// A transaction that is open. It derefs to what statements are executed with: a `tokio_postgres::Client`, a
/// `SqliteOpen`, a connection of sqlx. Dropped, it is rolled back.
pub struct Tx<S: TxSource> {
    open: S::Open,
    attempt: Attempt,
    mark: FenceMark,
    put: String,
    gate: Arc<Gate>,
}

impl<S: TxSource> fmt::Debug for Tx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tx").field(&self.mark).finish()
    }
}

impl<S: TxSource> Deref for Tx<S> {
    type Target = S::Conn;

    fn deref(&self) -> &S::Conn {
        S::conn(&self.open)
    }
}

impl<S: TxSource> DerefMut for Tx<S> {
    fn deref_mut(&mut self) -> &mut S::Conn {
        S::conn_mut(&mut self.open)
    }
}

impl<S: TxSource> Tx<S> {
    /// The try: its effect key, its fence, its number.
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Commits: the body's rows and this value, which is the step's outcome from here on.
    ///
    /// An error means that the database failed before the commit; all is rolled back. If the run has another owner by now,
    /// or if the database's answer is lost, the body does not go on from here: the step looks its outcome up.
    pub async fn commit<T: Serialize + Send>(self, value: T) -> Result<Committed<T>> {
        let outcome = Payload::of(&value).map_err(fatal)?;
        let Self { mut open, attempt, mark, put, gate } = self;
        let clock = attempt.clock();
        if !gate.enter() {
            return Err(fatal("the try that this transaction belongs to is over; it is rolled back"));
        }
        let put = answered(clock, S::put(&mut open, &put, &mark, Some(outcome.text()))).await;
        match put.map_err(Fail::from).flatten() {
            Ok(0) if !sabotage::commits(Bug::IgnoreFenceTable) => {
                // Dropped it would be rolled back as well; this way the connection is kept.
                drop(answered(clock, S::rollback(open)).await);
                return gate
                    .lose(Fail::retryable("its commit was refused: another one has come before it"))
                    .await;
            }
            Ok(_) => {}
            Err(fail) => {
                drop(open);
                gate.reopen();
                return Err(fail);
            }
        }
        if let Err(unknown) = answered(clock, S::commit(open)).await.map_err(Fail::from).flatten() {
            return gate.lose(unknown).await;
        }
        gate.committed(outcome);
        Ok(Committed(value))
    }
}

/// The proof that a transaction has committed, with its outcome.
#[must_use = "the body gives it back"]
pub struct Committed<T>(T);

impl<T> Deref for Committed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Committed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Committed").field(&self.0).finish()
    }
}
