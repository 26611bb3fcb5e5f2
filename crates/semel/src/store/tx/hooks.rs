//! Hooks: tokens and the runs that own them.

use std::future::Future;

use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::run::Run;

/// Rows of hooks in one transaction.
pub(crate) trait HookRows: Send {
    /// Gives a token to a run; false if it has an owner.
    fn insert_hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
        num: i64,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// The owner of a token, not locked.
    fn hook_owner(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
    ) -> impl Future<Output = Result<Option<RunId>>> + Send;
    /// The owner of a token, locked, and still the owner now that it is.
    fn hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
    ) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// Frees a token of a run.
    fn delete_hook(
        &mut self,
        workspace: WorkspaceId,
        token: &Token,
        num: i64,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Frees all tokens of a run.
    fn delete_hooks(&mut self, num: i64) -> impl Future<Output = Result<()>> + Send;
}
