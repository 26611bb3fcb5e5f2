//! An operator's call: who makes it, under which id, and what it came to.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use semel::id::RunId;
use semel::rules::control::{Action, Control, Controlled};

use super::Problem;
use super::answer::Answer;
use super::asked::CallKey;
use super::view::run_view;
use super::wait::found;
use crate::access::Caller;
use crate::api::{ControlAnswer, Permission};
use crate::app::App;

/// A call by somebody who may do everything.
pub(super) struct Call {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    pub(super) key: CallKey,
}

impl FromRequestParts<Arc<App>> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.may(Permission::Admin)?;
        let key = CallKey::from_request_parts(parts, app).await?;
        Ok(Self { app: app.clone(), caller, key })
    }
}

impl Call {
    /// Does something about a run. The header `Idempotency-Key` is the id under which it may be repeated.
    pub(super) async fn control(
        self,
        run: RunId,
        action: Action,
        expected: Option<u64>,
    ) -> Result<(Answer<ControlAnswer>, Controlled), Problem> {
        let workspace = self.caller.workspace;
        let control = Control { workspace, run, action, by: self.caller.name, id: self.key.0, expected };
        let controlled = self.app.store.control(control).await?;
        // How a run ended is not in its header. It is controlled, whatever becomes of this look; what went wrong with
        // that is in the log.
        let ended = match controlled.run.status().is_terminal() {
            true => found(&self.app, workspace, controlled.run.id()).await.ok(),
            false => None,
        };
        let (run, outcome) = ended.unwrap_or_else(|| (controlled.run.clone(), None));
        let answer = ControlAnswer { run: run_view(&run, outcome.as_ref()), changed: controlled.changed };
        Ok((Answer::ok(answer).replayed(controlled.repeated), controlled))
    }
}
