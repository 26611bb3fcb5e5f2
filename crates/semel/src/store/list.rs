//! Lists of runs: what is asked, the page that answers it, and the passes over an index that make the page.
//!
//! Every list reads an index from the newest run on. A filter that the index does not answer is applied to the rows that
//! are read, and the number of these rows is bounded: a page may therefore be partial, and names the run at which the
//! next one goes on.

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;

/// A question for a page of runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunQuery))]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Workspace whose runs are listed.
    #[serde(skip, default = "WorkspaceId::unsaid")]
    pub workspace: WorkspaceId,
    /// Only runs in this state; any state if absent.
    pub status: Option<Status>,
    /// Only runs of this workflow; any workflow if absent.
    pub workflow: Option<Name>,
    /// Only runs created at this time or later.
    pub since: Option<Time>,
    /// Only runs older than this one: the [`next`](Page::next) of the page before. The run has to exist still.
    pub before: Option<RunId>,
    /// Most runs of the page.
    pub limit: usize,
    /// Most runs read for a filter that no index answers; 1,000 by default.
    #[serde(default = "look_at")]
    pub look_at: usize,
}

const fn look_at() -> usize {
    Query::LOOK_AT
}

impl Query {
    /// Default bound on the runs that one page reads. A thousand rows take a few milliseconds on either database, so a
    /// list holds up the reads behind it no longer than that.
    pub const LOOK_AT: usize = 1_000;

    /// All runs of a workspace, at most this many, the newest first.
    pub const fn all(workspace: WorkspaceId, limit: usize) -> Self {
        let look_at = Self::LOOK_AT;
        Self { workspace, status: None, workflow: None, since: None, before: None, limit, look_at }
    }

    /// Whether a run is one of those that are asked for, wherever it stands among the pages.
    pub fn wants(&self, run: &Run) -> bool {
        run.new.workspace == self.workspace
            && self.status.is_none_or(|status| run.status() == status)
            && self.workflow.as_ref().is_none_or(|workflow| run.new.workflow == *workflow)
            && self.since.is_none_or(|since| run.new.created >= since)
    }

    /// The indexes to try, one after the other, until one of them yields the whole page.
    ///
    /// Completed runs have no index by state: sooner or later almost all runs are completed, and an index that all runs
    /// enter at their end would cost every run a write.
    pub(crate) fn indexes(&self) -> Vec<Index<'_>> {
        let status = self.status.filter(|status| *status != Status::Completed).map(Index::Status);
        let workflow = self.workflow.as_ref().map(Index::Workflow);
        match (workflow, status) {
            (None, None) => vec![Index::Workspace],
            (workflow, status) => workflow.into_iter().chain(status).collect(),
        }
    }
}

/// A page of runs, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The runs of this page.
    pub runs: Vec<Run>,
    /// The run after which the next page begins: the [`before`](Query::before) of the next question. Absent if this page
    /// is the last.
    pub next: Option<RunId>,
    /// Whether the bound on the runs to read was reached before the page was full. The next page may hold more.
    pub partial: bool,
}

impl IntoIterator for Page {
    type Item = Run;
    type IntoIter = std::vec::IntoIter<Run>;

    fn into_iter(self) -> Self::IntoIter {
        self.runs.into_iter()
    }
}

/// An index whose order is from the newest run to the oldest: by the time of creation, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index<'a> {
    /// All runs of the workspace.
    Workspace,
    /// Those of one workflow.
    Workflow(&'a Name),
    /// Those in one state; any but completed.
    Status(Status),
}

/// The place of a run in an index: the time of its creation, and its number.
pub(crate) type ListCursor = (Time, i64);

/// The place of a run.
pub(crate) fn place(run: &Run) -> ListCursor {
    (run.new.created, run.num)
}

/// One pass over an index, from the newest run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    pub(crate) query: &'a Query,
    pub(crate) index: Index<'a>,
    /// Only runs behind this place.
    pub(crate) before: Option<ListCursor>,
    /// Most runs wanted.
    pub(crate) limit: usize,
}

impl Scan<'_> {
    /// The workflow that is left for a filter, because the index has others too.
    pub(crate) fn filter_workflow(&self) -> Option<&Name> {
        self.query.workflow.as_ref().filter(|_| !matches!(self.index, Index::Workflow(_)))
    }

    /// The state that is left for a filter.
    pub(crate) fn filter_status(&self) -> Option<Status> {
        self.query.status.filter(|_| !matches!(self.index, Index::Status(_)))
    }

    /// Whether runs may be read that are not wanted.
    pub(crate) fn is_filtered(&self) -> bool {
        self.filter_workflow().is_some() || self.filter_status().is_some()
    }

    /// Most runs to read; without a filter every run that is read is wanted.
    pub(crate) fn rows(&self) -> usize {
        if self.is_filtered() { self.query.look_at.max(1) } else { self.limit }
    }

    /// Reads runs in the order of the index until enough are found, none is left, or the bound is reached.
    pub(crate) fn read(&self, runs: impl IntoIterator<Item = Result<Run>>) -> Result<Scanned> {
        let (mut found, mut left) = (Scanned::default(), self.rows());
        for run in runs {
            let run = run?;
            left = left.saturating_sub(1);
            let (stops, at) = (left == 0, (place(&run), run.id()));
            if self.query.wants(&run) {
                found.runs.push(run);
            }
            if found.runs.len() >= self.limit {
                break;
            }
            if stops {
                found.stopped_at = Some(at);
                break;
            }
        }
        Ok(found)
    }
}

/// Result of one pass over an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// At most as many as were wanted.
    pub(crate) runs: Vec<Run>,
    /// The last run that was read, if the bound on rows was reached before enough were found.
    pub(crate) stopped_at: Option<(ListCursor, RunId)>,
}
