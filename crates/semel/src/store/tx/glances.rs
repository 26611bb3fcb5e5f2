//! What a list shows of runs beside their headers: the ends of their ledgers, their hooks and their receipts.

use std::future::Future;

use crate::error::Result;
use crate::rules::key::Token;
use crate::rules::path::Visit;

/// Most bytes of a commit that is read for a list.
pub(crate) const GLANCE_BYTES: usize = 16 * 1024;
/// Number of commits that are read from the end of a ledger for a list.
pub(crate) const GLANCE_TAIL: usize = 8;
/// Code of the first kind of receipt that is not one of an absorbed duplicate.
pub(crate) const NOT_ABSORBED: i16 = 4;

/// What is read of one run. A commit that is too large is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlanceRow {
    pub(crate) num: i64,
    /// Number of absorbed duplicates of all kinds.
    pub(crate) duplicates: u64,
    /// Entries of the first commit.
    pub(crate) first: Option<String>,
    /// Entries of the latest commits, the last one first.
    pub(crate) tail: Vec<String>,
    /// The token that the run has opened last, and where.
    pub(crate) hook: Option<(Token, Option<Visit>)>,
}

/// Rows that lists read in one transaction.
pub(crate) trait GlanceRows: Send {
    /// A glance at each of these runs, in their order.
    fn glances(&mut self, nums: &[i64]) -> impl Future<Output = Result<Vec<GlanceRow>>> + Send;
}
