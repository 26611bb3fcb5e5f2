//! Onces, and the runs that wait for them.

use std::future::Future;

use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Label;
use crate::rules::once::OnceRow;
use crate::store::archive::OnceAt;

/// The unsettled once of a run that ends.
#[derive(Clone, Debug)]
pub(crate) struct HeldOnce {
    pub(crate) workspace: WorkspaceId,
    pub(crate) scope: String,
    pub(crate) label: Label,
    pub(crate) row: OnceRow,
}

impl HeldOnce {
    /// Where it stands.
    pub(crate) fn at(&self) -> OnceAt {
        (self.workspace, self.scope.clone(), self.label.clone())
    }
}

/// Rows of onces in one transaction.
pub(crate) trait OnceRows: Send {
    /// A `run_once` value, locked; locked against others even if it does not exist.
    fn once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
    ) -> impl Future<Output = Result<Option<OnceRow>>> + Send;
    /// Writes a `run_once` value that [`Self::once`] has locked, or deletes it.
    fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Lets a run wait for a `run_once` value that [`Self::once`] has locked, if it does not already.
    fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> impl Future<Output = Result<()>> + Send;
    /// The runs that wait for a `run_once` value, in order of their ids.
    fn once_waiters(&mut self, at: &OnceAt) -> impl Future<Output = Result<Vec<RunId>>> + Send;
    /// Deletes all waiters for a `run_once` value.
    fn delete_once_waiters(&mut self, at: &OnceAt) -> impl Future<Output = Result<()>> + Send;
    /// The unsettled ones of a run, locked.
    fn held_once(&mut self, owner: RunId) -> impl Future<Output = Result<Vec<HeldOnce>>> + Send;
    /// Forgets settled ones that have expired.
    fn delete_expired_once(&mut self, limit: usize) -> impl Future<Output = Result<usize>> + Send;
}
