//! Lists of runs, as an engine or client asks for them.

use std::future::IntoFuture;
use std::pin::Pin;

use super::caller::EngineOrClient;
use crate::clock::Time;
use crate::error::Result;
use crate::id::RunId;
use crate::rules::path::{InvalidPath, Name};
use crate::rules::status::Status;
use crate::store::{Page, Query};

/// Number of runs on a page, unless [`ListRuns::limit`] sets another.
const LIMIT: usize = 100;

/// A page of runs that has not been read yet: say which runs, then await it. The newest runs come first.
///
/// ```
/// # use semel::{Ctx, Engine, Result};
/// # use semel::rules::status::Status;
/// # async fn order(_: Ctx, cents: u64) -> Result<u64> { Ok(cents) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
/// # for cents in [1, 2, 3] { engine.start(order, cents).await?.result().await?; }
/// let (mut next, mut ids) = (None, Vec::new());
/// loop {
///     let page = engine.list().workflow("order").status(Status::Completed).limit(2).before(next).await?;
///     ids.extend(page.runs.iter().map(|run| run.id()));
///     next = page.next;
///     if next.is_none() {
///         break;
///     }
/// }
/// assert_eq!(ids.len(), 3);
/// # Ok(())
/// # }
/// ```
#[must_use = "a list is read when it is awaited"]
#[derive(Debug)]
pub struct ListRuns {
    caller: EngineOrClient,
    query: Result<Query, InvalidPath>,
}

impl ListRuns {
    pub(super) fn new(caller: EngineOrClient) -> Self {
        let query = Ok(Query::all(caller.workspace(), LIMIT));
        Self { caller, query }
    }

    fn with(mut self, change: impl FnOnce(Query) -> Query) -> Self {
        self.query = self.query.map(change);
        self
    }

    /// Only runs that have this status now.
    pub fn status(self, status: Status) -> Self {
        self.with(|query| Query { status: vec![status], ..query })
    }

    /// Only runs of this workflow, in any version.
    pub fn workflow(mut self, name: &str) -> Self {
        self.query = self.query.and_then(|query| Ok(Query { workflow: vec![Name::new(name)?], ..query }));
        self
    }

    /// Only runs that were created at this time or later.
    pub fn since(self, time: Time) -> Self {
        self.with(|query| Query { since: Some(time), ..query })
    }

    /// Goes on after the previous page, with its [`next`](Page::next); from the newest run on if that is none.
    pub fn before(self, next: impl Into<Option<RunId>>) -> Self {
        let before = next.into();
        self.with(|query| Query { before, ..query })
    }

    /// Maximum number of runs on the page; 100 by default. With several filters a page may have fewer and still have a
    /// [`next`](Page::next).
    pub fn limit(self, limit: usize) -> Self {
        self.with(|query| Query { limit, ..query })
    }
}

impl IntoFuture for ListRuns {
    type Output = Result<Page>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.caller.store().list(self.query?).await })
    }
}
