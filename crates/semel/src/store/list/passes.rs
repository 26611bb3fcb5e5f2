//! Passes over indexes: which index answers which filters, and how the passes over several stretches become one page.

use std::collections::HashSet;

use super::{Order, Query};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;

/// An index whose order is that of creation: by time, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index<'a> {
    /// All runs of the workspace.
    Workspace,
    /// Those of one workflow.
    Workflow(&'a Name),
    /// Those in one state; any but completed.
    Status(Status),
    /// Those that are paused for a reason of one kind.
    Attention(Attention),
    /// Those that one run has started.
    Parent(RunId),
    /// Those that have inherited one lineage. The run that it belongs to is not among them.
    Lineage(RunId),
}

impl Index<'_> {
    /// Whether a run stands in it.
    pub(crate) fn has(&self, run: &Run) -> bool {
        match *self {
            Self::Workspace => true,
            Self::Workflow(workflow) => run.new.workflow == *workflow,
            Self::Status(status) => run.status() == status,
            Self::Attention(kind) => run.state.attention == Some(kind),
            Self::Parent(parent) => run.new.parent == Some(parent),
            Self::Lineage(lineage) => run.new.lineage == lineage && run.id() != lineage,
        }
    }
}

/// One way to a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pass<'a> {
    /// By the keys with a prefix, in no order: an answer only if there are few of them.
    Keys,
    /// By stretches of indexes, merged in the order of the list.
    Ordered(Vec<Index<'a>>),
}

impl Query {
    /// The passes to try, one after the other, until one of them yields the whole page.
    ///
    /// Completed runs have no index by state: sooner or later almost all runs are completed, and an index that all runs
    /// enter at their end would cost every run a write.
    pub(crate) fn passes(&self) -> Vec<Pass<'_>> {
        let one = |index: Index<'static>| Pass::Ordered(vec![index]);
        let mut passes: Vec<Pass<'_>> = Vec::new();
        passes.extend(self.parent.map(|parent| one(Index::Parent(parent))));
        passes.extend(self.lineage.map(|lineage| one(Index::Lineage(lineage))));
        passes.extend(self.attention.map(|kind| one(Index::Attention(kind))));
        passes.extend(self.key_prefix.is_some().then_some(Pass::Keys));
        if !self.workflow.is_empty() {
            passes.push(Pass::Ordered(distinct(&self.workflow).map(Index::Workflow).collect()));
        }
        if self.node.is_some() {
            passes.push(one(Index::Status(Status::Running)));
        } else if !self.status.is_empty() && !self.status.contains(&Status::Completed) {
            passes.push(Pass::Ordered(distinct(&self.status).map(|status| Index::Status(*status)).collect()));
        }
        // Keys alone answer nothing if there are many of them.
        if !passes.iter().any(|pass| matches!(pass, Pass::Ordered(_))) {
            passes.push(one(Index::Workspace));
        }
        passes
    }
}

fn distinct<T: PartialEq>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(|(n, one)| !all[..*n].contains(one)).map(|(_, one)| one)
}

/// The place of a run in an index: the time of its creation, and its number.
pub(crate) type ListCursor = (Time, i64);

/// The place of a run.
pub(crate) fn place(run: &Run) -> ListCursor {
    (run.new.created, run.num)
}

/// The stretch of an index that is read: from one place to another, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: ListCursor,
    pub(crate) to: ListCursor,
}

impl Range {
    /// What is asked for behind a place in the order of the list.
    pub(crate) fn of(query: &Query, behind: Option<ListCursor>) -> Self {
        let from = (query.since.unwrap_or(Time(i64::MIN)), i64::MIN);
        let to =
            (query.until.unwrap_or(Time(i64::MAX)), if query.until.is_some() { i64::MIN } else { i64::MAX });
        let mut range = Self { from, to };
        match (behind, query.order) {
            (Some(place), Order::Newest) => range.to = range.to.min(place),
            (Some((created, num)), Order::Oldest) => range.from = range.from.max((created, num + 1)),
            (None, _) => {}
        }
        range
    }

    pub(crate) fn has(&self, place: ListCursor) -> bool {
        (self.from..self.to).contains(&place)
    }

    /// Leaves out what is behind this place in the order of the list.
    fn end_at(&mut self, order: Order, (created, num): ListCursor) {
        match order {
            Order::Newest => self.from = (created, num),
            Order::Oldest => self.to = (created, num + 1),
        }
    }
}

/// One pass over a stretch of an index, in the order of the list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a> {
    pub(crate) query: &'a Query,
    pub(crate) index: Index<'a>,
    pub(crate) range: Range,
    /// Most runs wanted.
    pub(crate) limit: usize,
    /// Most runs to read if not all of them are wanted.
    pub(crate) look_at: usize,
}

impl Scan<'_> {
    pub(crate) fn workspace(&self) -> WorkspaceId {
        self.query.workspace
    }

    /// The workflows that are left for a filter, because the index has others too.
    pub(crate) fn filter_workflows(&self) -> &[Name] {
        if matches!(self.index, Index::Workflow(_)) { &[] } else { &self.query.workflow }
    }

    /// The states that are left for a filter.
    pub(crate) fn filter_statuses(&self) -> &[Status] {
        match self.index {
            // Only paused runs have a reason of a pause.
            Index::Attention(_) if self.query.status.contains(&Status::Paused) => &[],
            Index::Status(status) if self.query.status.is_empty() || self.query.status.contains(&status) => {
                &[]
            }
            _ => &self.query.status,
        }
    }

    /// The kind of a pause that is left for a filter.
    pub(crate) fn filter_attention(&self) -> Option<Attention> {
        self.query.attention.filter(|kind| self.index != Index::Attention(*kind))
    }

    /// The parent that is left for a filter.
    pub(crate) fn filter_parent(&self) -> Option<RunId> {
        self.query.parent.filter(|parent| self.index != Index::Parent(*parent))
    }

    /// The lineage that is left for a filter.
    pub(crate) fn filter_lineage(&self) -> Option<RunId> {
        self.query.lineage.filter(|lineage| self.index != Index::Lineage(*lineage))
    }

    /// Whether runs may be read that are not wanted.
    pub(crate) fn is_filtered(&self) -> bool {
        let Query { workflow_version, key_prefix, ended_since, node, .. } = self.query;
        !self.filter_workflows().is_empty()
            || !self.filter_statuses().is_empty()
            || self.filter_attention().is_some()
            || self.filter_parent().is_some()
            || self.filter_lineage().is_some()
            || workflow_version.is_some()
            || key_prefix.is_some()
            || ended_since.is_some()
            || node.is_some()
    }

    /// Most runs to read; without a filter every run that is read is wanted.
    pub(crate) fn rows(&self) -> usize {
        if self.is_filtered() { self.look_at.max(1) } else { self.limit }
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

/// The passes over several stretches, as if they were one index.
pub(crate) struct Merged {
    order: Order,
    limit: usize,
    /// What is still of interest: behind the page nothing is.
    pub(crate) range: Range,
    scanned: Scanned,
}

impl Merged {
    pub(crate) fn new(order: Order, limit: usize, range: Range) -> Self {
        Self { order, limit, range, scanned: Scanned::default() }
    }

    /// Adds what a pass has found.
    pub(crate) fn add(&mut self, found: Scanned) {
        if let Some(last) = found.runs.last().filter(|_| found.runs.len() >= self.limit) {
            self.range.end_at(self.order, place(last));
        }
        self.scanned.runs.extend(found.runs);
        // What has not been read begins at the first of the places at which a pass has stopped.
        let stops = self.scanned.stopped_at.into_iter().chain(found.stopped_at);
        self.scanned.stopped_at =
            stops.reduce(|one, other| if self.order.puts(one.0, other.0) { one } else { other });
    }

    /// The runs of all passes in the order of the list, as far as none is missing between them.
    pub(crate) fn finish(self) -> Scanned {
        let Scanned { mut runs, mut stopped_at } = self.scanned;
        runs.sort_unstable_by_key(place);
        if self.order == Order::Newest {
            runs.reverse();
        }
        let mut seen = HashSet::new();
        runs.retain(|run| seen.insert(run.num));
        if let Some((stop, _)) = stopped_at {
            runs.retain(|run| !self.order.puts(stop, place(run)));
        }
        if runs.len() >= self.limit {
            runs.truncate(self.limit);
            stopped_at = None;
        }
        Scanned { runs, stopped_at }
    }
}

impl Order {
    /// Whether a list has the one place before the other.
    pub(crate) fn puts(self, one: ListCursor, other: ListCursor) -> bool {
        match self {
            Self::Newest => one > other,
            Self::Oldest => one < other,
        }
    }
}
