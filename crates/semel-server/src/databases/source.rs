//! A database of a connection, as transactional steps see it: with the connection's turns, and with errors that have a code.

use std::fmt;
use std::sync::Arc;

use semel::tx::{BranchName, Dialect, FenceMark, FenceRow, TwoPhase, TxSource};
use semel::{Fail, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failed::coded;
use super::{Bound, ResultBounds, Spelling, SqlResult, SqlSource};
use crate::connections::Redactor;
use semel::error::failure_code;

/// A database behind a connection; or why there is none, in which case each try fails with that.
pub(crate) struct Guarded<S> {
    source: Result<S, String>,
    turns: Arc<Semaphore>,
    redactor: Arc<Redactor>,
}

impl<S: Clone> Clone for Guarded<S> {
    fn clone(&self) -> Self {
        Self { source: self.source.clone(), turns: self.turns.clone(), redactor: self.redactor.clone() }
    }
}

impl<S> fmt::Debug for Guarded<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

/// A transaction that is open, with the turn that it has.
pub(crate) struct GuardedOpen<O> {
    open: O,
    redactor: Arc<Redactor>,
    _turn: OwnedSemaphorePermit,
}

impl<S: SqlSource> Guarded<S> {
    /// A database, with the turns of its connection.
    pub(crate) fn new(source: S, turns: Arc<Semaphore>, redactor: Arc<Redactor>) -> Self {
        Self { source: Ok(source), turns, redactor }
    }

    /// Takes the place of a database whose connection cannot be used: every use of it fails with `why`.
    pub(crate) fn missing(why: String) -> Self {
        Self { source: Err(why), turns: Arc::new(Semaphore::new(1)), redactor: Arc::default() }
    }

    fn source(&self) -> Result<&S> {
        self.source.as_ref().map_err(|why| Fail::retryable(why).with_code(failure_code::CONNECTION))
    }

    /// Waits for a turn, and opens a transaction.
    async fn open(
        &self,
        opening: impl Future<Output = Result<S::Open>> + Send,
    ) -> Result<GuardedOpen<S::Open>> {
        let turn = self.turns.clone().acquire_owned().await?;
        let open = opening.await.map_err(|fail| coded(fail, &self.redactor))?;
        Ok(GuardedOpen { open, redactor: self.redactor.clone(), _turn: turn })
    }
}

/// An error of the fence table. It may be missing, and then nothing has taken place.
fn of_fence(fail: Fail, redactor: &Redactor) -> Fail {
    let fail = coded(fail, redactor);
    let state = fail.data().map(|data| data.text().to_owned()).unwrap_or_default();
    let is_missing =
        state.contains("42P01") || state.contains("42S02") || fail.to_string().contains("no such table");
    if !is_missing {
        return fail;
    }
    Fail::retryable(format!("{fail}; make the fence table with `semel connection check NAME --install`"))
        .with_code(failure_code::CONNECTION)
}

impl<S: SqlSource> TxSource for Guarded<S> {
    type Open = GuardedOpen<S::Open>;
    type Conn = S::Conn;
    const DIALECT: Dialect = S::DIALECT;

    async fn begin(&self) -> Result<Self::Open> {
        self.open(self.source()?.begin()).await
    }

    async fn script(&self, sql: &str) -> Result<()> {
        self.source()?.script(sql).await.map_err(|fail| coded(fail, &self.redactor))
    }

    async fn find(open: &mut Self::Open, sql: &str, key: &str) -> Result<Option<FenceRow>> {
        S::find(&mut open.open, sql, key).await.map_err(|fail| of_fence(fail, &open.redactor))
    }

    async fn put(open: &mut Self::Open, sql: &str, mark: &FenceMark, outcome: Option<&str>) -> Result<u64> {
        S::put(&mut open.open, sql, mark, outcome).await.map_err(|fail| of_fence(fail, &open.redactor))
    }

    async fn commit(open: Self::Open) -> Result<()> {
        let GuardedOpen { open, redactor, _turn } = open;
        S::commit(open).await.map_err(|fail| coded(fail, &redactor))
    }

    async fn rollback(open: Self::Open) -> Result<()> {
        let GuardedOpen { open, redactor, _turn } = open;
        S::rollback(open).await.map_err(|fail| coded(fail, &redactor))
    }

    fn conn(open: &Self::Open) -> &S::Conn {
        S::conn(&open.open)
    }

    fn conn_mut(open: &mut Self::Open) -> &mut S::Conn {
        S::conn_mut(&mut open.open)
    }
}

impl<S: SqlSource> TwoPhase for Guarded<S> {
    const PREPARES: bool = S::PREPARES;

    async fn begin_branch(&self, name: &BranchName) -> Result<Self::Open> {
        self.open(self.source()?.begin_branch(name)).await
    }

    /// Without a turn: what waits for it may be the work that has all turns.
    async fn begin_brief(&self) -> Result<Self::Open> {
        let brief = Self { turns: Arc::new(Semaphore::new(1)), ..self.clone() };
        brief.open(self.source()?.begin_brief()).await
    }

    async fn prepare(open: Self::Open, name: &BranchName) -> Result<()> {
        let GuardedOpen { open, redactor, _turn } = open;
        S::prepare(open, name).await.map_err(|fail| coded(fail, &redactor))
    }

    async fn prepared(&self) -> Result<Vec<BranchName>> {
        self.source()?.prepared().await.map_err(|fail| coded(fail, &self.redactor))
    }
}

impl<S: SqlSource> SqlSource for Guarded<S> {
    const SPELLING: Spelling = S::SPELLING;

    async fn execute(conn: &mut S::Conn, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        S::execute(conn, bound, bounds).await.map_err(|fail| coded(fail, &bounds.redactor))
    }

    async fn read(&self, bound: Bound, bounds: &ResultBounds) -> Result<SqlResult> {
        let source = self.source()?;
        let _turn = self.turns.acquire().await?;
        source.read(bound, bounds).await.map_err(|fail| coded(fail, &bounds.redactor))
    }
}
