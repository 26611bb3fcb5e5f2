//! Due runs: what a claim looks for, and takes.

use std::future::Future;

use super::{RunRows, race};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::claim::Drives;
use crate::rules::family::Family;
use crate::rules::run::{Run, RunState};

/// A run taken by a claim: its new state and the entry that says so.
#[derive(Clone, Debug)]
pub(crate) struct ClaimedRow {
    pub(crate) num: i64,
    pub(crate) expected: u64,
    pub(crate) state: RunState,
    pub(crate) text: String,
}

/// Rows of due runs in one transaction.
pub(crate) trait DueRows: RunRows {
    /// Due runs of these versions of workflows, the longest due first, locked; those that another transaction has locked are left out.
    fn due(&mut self, workflows: &[Drives], limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// For each of these, the earliest time later than `after` at which a run of it is or becomes due.
    fn dues(
        &mut self,
        workflows: &[Drives],
        after: Time,
    ) -> impl Future<Output = Result<Vec<Option<Time>>>> + Send;
    /// Due runs of these families, the longest due first, locked; those that another transaction has locked are left out.
    fn due_in(&mut self, families: &[Family], limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// The earliest time later than `after` at which a run of one of these families is or becomes due.
    fn next_due_in(
        &mut self,
        families: &[Family],
        after: Time,
    ) -> impl Future<Output = Result<Option<Time>>> + Send;
    /// Writes the claims of runs that [`Self::due`] has locked. A backend may write all with one statement.
    fn take(&mut self, taken: &[ClaimedRow]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for run in taken {
                if !self.save(run.num, run.expected, &run.state).await? {
                    return Err(race());
                }
                self.append(run.num, run.expected, &run.text).await?;
            }
            Ok(())
        }
    }
    /// Runs that are open and not paused and whose deadline has passed, the longest overdue first, locked; those that are
    /// locked already are left out.
    fn overdue(&mut self, limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
}
