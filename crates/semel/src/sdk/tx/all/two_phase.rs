//! What a database has to offer so that it can take part in a transaction over several.

use crate::fail::Result;
use crate::rules::branch::BranchName;
use crate::sdk::tx::{Dialect, TxSource};

/// A database that can prepare a transaction: what [`TxAll::on`](super::TxAll::on) takes. Semel has it for every [`TxSource`]
/// of its own. SQLite has it too, so that a list of databases may have SQLite as its only member; beside another database it is
/// refused when the block runs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot take part in a transaction over several databases",
    note = "deadpool-postgres's `Pool`, sqlx's `PgPool` and `MySqlPool` can; `SqliteDb` and `SqlitePool` only alone"
)]
pub trait TwoPhase: TxSource {
    /// Whether it can prepare a transaction at all.
    const PREPARES: bool = true;

    /// Begins a transaction that can be prepared under this name.
    fn begin_branch(&self, name: &BranchName) -> impl Future<Output = Result<Self::Open>> + Send;

    /// Begins a small transaction that waits for a lock no longer than a second.
    fn begin_brief(&self) -> impl Future<Output = Result<Self::Open>> + Send;

    /// Prepares the transaction. From here on it belongs to no session, and survives the death of the server; so the session
    /// must be over if it could still hold on to the branch. An error means that it is unknown whether it is prepared.
    fn prepare(open: Self::Open, name: &BranchName) -> impl Future<Output = Result<()>> + Send;

    /// The prepared branches of ours that this database, or its server, knows, and that can be ended now unless their sessions
    /// live.
    fn prepared(&self) -> impl Future<Output = Result<Vec<BranchName>>> + Send;
}

impl Dialect {
    /// The statement that commits a prepared branch.
    pub fn commit_branch(self, name: &BranchName) -> String {
        match self {
            Self::Mysql => format!("XA COMMIT {}", xid(name)),
            Self::Postgres | Self::Sqlite => format!("COMMIT PREPARED '{name}'"),
        }
    }

    /// The statement that rolls a prepared branch back.
    pub fn rollback_branch(self, name: &BranchName) -> String {
        match self {
            Self::Mysql => format!("XA ROLLBACK {}", xid(name)),
            Self::Postgres | Self::Sqlite => format!("ROLLBACK PREPARED '{name}'"),
        }
    }
}

/// The two parts of a name, quoted. Names have no quotes in them.
fn xid(name: &BranchName) -> String {
    let (key, rest) = name.xid();
    format!("'{key}', '{rest}'")
}

/// How a transaction begins in PostgreSQL that waits no longer than a second for a row that a prepared branch has locked.
#[cfg(any(feature = "postgres", feature = "sqlx-postgres"))]
const BRIEF: &str = "BEGIN; SET LOCAL lock_timeout = '1s'";

/// Our branches in this database: another one cannot end them.
#[cfg(any(feature = "postgres", feature = "sqlx-postgres"))]
const LIST: &str =
    "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE 'semel/%' AND database = current_database()";

/// What PostgreSQL answers where it is set up for no prepared transactions, which is its default.
#[cfg(any(feature = "postgres", feature = "sqlx-postgres"))]
fn refused(state: Option<&str>, error: impl Into<crate::fail::Fail>) -> crate::fail::Fail {
    if state == Some("55000") {
        return crate::fail::fatal(
            "this PostgreSQL prepares no transactions: set max_prepared_transactions to its max_connections in \
             postgresql.conf, and restart it",
        );
    }
    error.into()
}

#[cfg(feature = "postgres")]
impl TwoPhase for deadpool_postgres::Pool {
    async fn begin_branch(&self, _: &BranchName) -> Result<Self::Open> {
        self.begin().await
    }

    async fn begin_brief(&self) -> Result<Self::Open> {
        crate::sdk::tx::PgOpen::begin(self, BRIEF).await
    }

    async fn prepare(open: Self::Open, name: &BranchName) -> Result<()> {
        let prepared = open.end(&format!("PREPARE TRANSACTION '{name}'")).await;
        prepared.map_err(|error| {
            let state = error.code().map(|state| state.code().to_owned());
            refused(state.as_deref(), error)
        })
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        let rows = self.get().await?.query(LIST, &[]).await?;
        let names: Vec<String> =
            rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>()?;
        Ok(names.iter().filter_map(|name| BranchName::parse(name)).collect())
    }
}

#[cfg(feature = "sqlx-postgres")]
impl TwoPhase for sqlx::PgPool {
    async fn begin_branch(&self, _: &BranchName) -> Result<Self::Open> {
        TxSource::begin(self).await
    }

    async fn begin_brief(&self) -> Result<Self::Open> {
        crate::sdk::tx::begin_with(self, BRIEF).await
    }

    async fn prepare(mut open: Self::Open, name: &BranchName) -> Result<()> {
        let prepare = sqlx::AssertSqlSafe(format!("PREPARE TRANSACTION '{name}'"));
        // When it is dropped, a ROLLBACK is sent, which ends nothing any more.
        match sqlx::raw_sql(prepare).execute(&mut *open).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let state = error.as_database_error().and_then(|error| error.code().map(String::from));
                Err(refused(state.as_deref(), error))
            }
        }
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        let names: Vec<String> = sqlx::query_scalar(LIST).fetch_all(self).await?;
        Ok(names.iter().filter_map(|name| BranchName::parse(name)).collect())
    }
}

/// How long MariaDB is given to end a session that has prepared a branch. When a session ends, the server first says that the
/// branch is free, and its storage engine lets go of it a moment later. Another session that ends the branch in between gets the
/// answer that this is done, although nothing is done, and the branch is in no list any more until the server is started again.
/// (MySQL has the same order, and waits.) The moment is that between two calls of one thread; this is long enough for a thread
/// that has to wait for a processor.
#[cfg(feature = "sqlx-mysql")]
const DETACH: std::time::Duration = std::time::Duration::from_millis(50);

/// Ends a session that sends nothing for ten seconds, and with it a branch that is not prepared: a machine that vanishes while the
/// body is at work would else keep its rows locked until TCP notices. Such a session is used for nothing else.
#[cfg(feature = "sqlx-mysql")]
const ALONE: &str = "SET wait_timeout = 10";

#[cfg(feature = "sqlx-mysql")]
impl TwoPhase for sqlx::MySqlPool {
    async fn begin_branch(&self, name: &BranchName) -> Result<Self::Open> {
        let begin = "ROLLBACK; SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
        crate::sdk::tx::MySqlOpen::alone(self, format!("{begin}; {ALONE}; XA START {}", xid(name))).await
    }

    async fn begin_brief(&self) -> Result<Self::Open> {
        let begin =
            "ROLLBACK; SET innodb_lock_wait_timeout = 1; SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
        crate::sdk::tx::MySqlOpen::alone(self, format!("{begin}; {ALONE}; START TRANSACTION")).await
    }

    async fn prepare(mut open: Self::Open, name: &BranchName) -> Result<()> {
        let xid = xid(name);
        let prepare = sqlx::AssertSqlSafe(format!("XA END {xid}; XA PREPARE {xid}"));
        sqlx::raw_sql(prepare).execute(open.get_mut()).await?;
        // While its session lives, no other one can end the branch: the answer is that there is none.
        open.close().await;
        tokio::time::sleep(DETACH).await;
        Ok(())
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        use sqlx::Row as _;
        let rows = sqlx::raw_sql("XA RECOVER").fetch_all(self).await?;
        let mut names = Vec::new();
        for row in rows {
            // The lengths of both parts, then both in one.
            let length: i64 = row.try_get_unchecked(1)?;
            let data: Vec<u8> = row.try_get_unchecked(3)?;
            let data = String::from_utf8_lossy(&data).into_owned();
            let parts = data.split_at_checked(usize::try_from(length)?);
            names.extend(parts.and_then(|(key, rest)| BranchName::of_xid(key, rest)));
        }
        if !names.is_empty() {
            // The caller may end them, and a session of theirs may be about to end.
            tokio::time::sleep(DETACH).await;
        }
        Ok(names)
    }
}

/// SQLite has no such thing.
#[cfg(any(feature = "sqlite", feature = "sqlx-sqlite"))]
macro_rules! alone {
    ($source:ty) => {
        impl TwoPhase for $source {
            const PREPARES: bool = false;

            async fn begin_branch(&self, _: &BranchName) -> Result<Self::Open> {
                Err(super::only_alone())
            }

            async fn begin_brief(&self) -> Result<Self::Open> {
                Err(super::only_alone())
            }

            async fn prepare(_: Self::Open, _: &BranchName) -> Result<()> {
                Err(super::only_alone())
            }

            async fn prepared(&self) -> Result<Vec<BranchName>> {
                Ok(Vec::new())
            }
        }
    };
}

#[cfg(feature = "sqlite")]
alone!(crate::sdk::tx::SqliteDb);
#[cfg(feature = "sqlx-sqlite")]
alone!(sqlx::SqlitePool);
