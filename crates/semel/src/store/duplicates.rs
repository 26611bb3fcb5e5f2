//! The duplicates of a workspace: what is asked, and the page that answers it.
//!
//! There is one row per run and kind, and the one that was added to last is the first. A filter that the index does not answer
//! is applied to the rows that are read, whose number is bounded: a page may be partial.

use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::{Key, Scope};
use crate::rules::path::Name;
use crate::rules::receipt::{Absorbed, ReceiptKind};

/// A question for a page of absorbed and refused calls.
#[derive(Clone, Debug)]
pub struct DuplicatesQuery {
    /// Workspace whose duplicates are listed.
    pub workspace: WorkspaceId,
    /// Only of this kind; of any kind if none.
    pub kind: Option<ReceiptKind>,
    /// Only on runs that were started under this key, in any scope; on any run if none.
    pub key: Option<Key>,
    /// Only rows whose latest call came at this time or later.
    pub since: Option<Time>,
    /// Only rows behind this one: the [`next`](DuplicatesPage::next) of the page before.
    pub before: Option<DuplicateCursor>,
    /// Most rows of the page.
    pub limit: usize,
    /// Most rows read for a filter that no index answers.
    pub look_at: usize,
}

impl DuplicatesQuery {
    /// Default bound on the rows that one page reads.
    pub const LOOK_AT: usize = 500;

    /// All duplicates of a workspace, at most this many rows, the latest first.
    pub const fn all(workspace: WorkspaceId, limit: usize) -> Self {
        let look_at = Self::LOOK_AT;
        Self { workspace, kind: None, key: None, since: None, before: None, limit, look_at }
    }

    /// Whether rows may be read that are not wanted.
    pub(crate) fn is_filtered(&self) -> bool {
        self.kind.is_some() || self.key.is_some()
    }

    /// Most rows to read. One more than wanted tells whether there is another page.
    pub(crate) fn rows(&self) -> usize {
        if self.is_filtered() { self.look_at.max(1) } else { self.limit + 1 }
    }
}

/// Place of a row in the list of duplicates, as callers know it. The run has to exist still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateCursor {
    /// Time of the latest call.
    pub last: Time,
    /// The run that owns the original.
    pub run: RunId,
    /// Kind of the calls.
    pub kind: ReceiptKind,
}

/// The same place in the order of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DuplicatePlace {
    pub(crate) last: Time,
    pub(crate) num: i64,
    pub(crate) kind: ReceiptKind,
}

impl DuplicatePlace {
    /// A place before all rows.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) const FIRST: Self = Self { last: Time(i64::MAX), num: i64::MAX, kind: ReceiptKind::Refused };
}

/// The absorbed or refused calls of one kind on one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsorbedCalls {
    /// The run that owns the original.
    pub run: RunId,
    /// Workflow of that run.
    pub workflow: Name,
    /// Key under which that run was started.
    pub key: Key,
    /// Scope in which the key is unique.
    pub scope: Scope,
    /// Kind of the calls.
    pub kind: ReceiptKind,
    /// Number of such calls.
    pub count: u64,
    /// Time of the first one.
    pub first: Time,
    /// The latest of these calls.
    pub latest: Absorbed,
}

/// A row that was read: its place, and its calls if they are wanted.
#[derive(Clone, Debug)]
pub(crate) struct DuplicateRow {
    pub(crate) at: DuplicatePlace,
    pub(crate) run: RunId,
    pub(crate) calls: Option<AbsorbedCalls>,
}

/// A page of duplicates, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DuplicatesPage {
    /// The rows of this page.
    pub rows: Vec<AbsorbedCalls>,
    /// The row after which the next page begins. None if this page is the last.
    pub next: Option<DuplicateCursor>,
    /// Whether the bound on the rows to read was reached before the page was full.
    pub partial: bool,
}

impl DuplicatesPage {
    /// Makes a page of the rows that were read.
    pub(crate) fn of(query: &DuplicatesQuery, rows: Vec<DuplicateRow>) -> Self {
        let mut page = Self::default();
        let bounded = query.is_filtered() && rows.len() >= query.rows();
        let mut last = None;
        for DuplicateRow { at: DuplicatePlace { last: latest, kind, .. }, run, calls } in rows {
            if let Some(calls) = calls {
                if page.rows.len() >= query.limit {
                    page.next = last;
                    return page;
                }
                page.rows.push(calls);
            }
            last = Some(DuplicateCursor { last: latest, run, kind });
        }
        page.partial = bounded;
        page.next = last.filter(|_| bounded);
        page
    }
}
