//! Figures of workspaces, by minute and by hour.

use std::future::Future;

use uuid::Uuid;

use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::stats::StatsSpan;

/// Where figures stand: each process that has the store open writes rows of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StatsAt {
    pub(crate) workspace: WorkspaceId,
    pub(crate) span: StatsSpan,
    /// The first minute of the stretch, counted from 1970.
    pub(crate) minute: i64,
    pub(crate) server: Uuid,
}

/// Figures as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsRow {
    pub(crate) minute: i64,
    pub(crate) body: String,
    /// Those of the workflows, which are read only when they are asked for.
    pub(crate) workflows: Option<String>,
}

/// A stretch of rows of one workspace, in the order of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatsLook {
    pub(crate) workspace: WorkspaceId,
    pub(crate) span: StatsSpan,
    /// The first minute that is wanted.
    pub(crate) from: i64,
    /// The first minute that is not wanted.
    pub(crate) to: i64,
    pub(crate) workflows: bool,
    pub(crate) limit: usize,
}

/// Rows of figures in one transaction.
pub(crate) trait StatsRows: Send {
    /// The figures at a place, with those of the workflows. Only the server of the place writes them.
    fn stats_at(&mut self, at: &StatsAt) -> impl Future<Output = Result<Option<StatsRow>>> + Send;
    /// Writes the figures at a place.
    fn put_stats(
        &mut self,
        at: &StatsAt,
        body: &str,
        workflows: &str,
    ) -> impl Future<Output = Result<()>> + Send;
    /// The figures of a stretch of time, of all servers.
    fn stats(&mut self, look: &StatsLook) -> impl Future<Output = Result<Vec<StatsRow>>> + Send;
    /// Forgets up to `limit` rows of minutes or of hours that began before a minute. How many there were.
    fn delete_stats(
        &mut self,
        span: StatsSpan,
        before: i64,
        limit: usize,
    ) -> impl Future<Output = Result<usize>> + Send;
}
