//! Calls that are remembered under an id, and receipts of absorbed duplicates.

use std::future::Future;

use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::deliver::PastCall;
use crate::rules::key::CallId;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::store::duplicates::{DuplicatePlace, DuplicateRow, DuplicatesQuery};

/// Where a call is remembered: its id is unique in its workspace and scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallAt<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) scope: &'a str,
    pub(crate) id: &'a CallId,
}

/// Rows of remembered calls and of receipts in one transaction.
pub(crate) trait CallRows: Send {
    /// The call that was accepted under an id.
    fn call(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        id: &CallId,
    ) -> impl Future<Output = Result<Option<PastCall>>> + Send;
    /// Remembers a call, for as long as the history of the run with this number; false if the id is taken. With `replaces`, a
    /// call of that run gives up the id.
    fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// Adds to the receipts of a run, if the run is still known.
    fn add_receipts(
        &mut self,
        num: i64,
        kind: ReceiptKind,
        receipts: &Receipts,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Rows of receipts of a workspace behind a place, the one that was added to last first, as many as the query reads at most.
    fn duplicates(
        &mut self,
        query: &DuplicatesQuery,
        before: Option<DuplicatePlace>,
    ) -> impl Future<Output = Result<Vec<DuplicateRow>>> + Send;
    /// The receipts of a run.
    fn receipts(&mut self, num: i64) -> impl Future<Output = Result<Vec<(ReceiptKind, Receipts)>>> + Send;
}
