//! Hooks: tokens and the runs that own them.

use std::future::Future;

use crate::clock::Time;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::Token;
use crate::rules::path::Visit;
use crate::rules::run::Run;
use crate::store::list::text_after;
use crate::store::{HookQuery, OpenHook};

/// Number of messages of a run among which deliveries to one of its hooks are counted.
pub(crate) const COUNTED_MESSAGES: usize = 100;

/// A token that is given to a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewHook<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) token: &'a Token,
    pub(crate) num: i64,
    /// Where the run opens it; none if it has not come there yet.
    pub(crate) visit: Option<&'a Visit>,
    pub(crate) opened: Time,
}

/// Rows of hooks in one transaction.
pub(crate) trait HookRows: Send {
    /// Gives a token to a run; false if it has an owner.
    fn insert_hook(&mut self, hook: NewHook<'_>) -> impl Future<Output = Result<bool>> + Send;
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
    /// Hooks in the order of a list, at most `limit`.
    fn open_hooks(
        &mut self,
        query: &HookQuery,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<OpenHook>>> + Send;
}

/// The stretch of tokens of a query: behind the first, from the second on, and before the third.
pub(crate) fn tokens_of(query: &HookQuery) -> (&str, &str, String) {
    let after = query.after.as_ref().map_or("", |place| place.token.as_str());
    (after, &query.prefix, text_after(&query.prefix))
}

/// How the text of a delivery to a token begins in an inbox.
#[cfg(feature = "sqlite")]
pub(crate) fn delivery_text(token: &Token) -> String {
    let token = serde_json::to_string(token).expect("a token is a text");
    format!("{{\"delivery\":{{\"token\":{token}")
}
