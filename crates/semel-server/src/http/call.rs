//! Control calls of operators: caller, call id and answer.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use semel::id::RunId;
use semel::rules::control::{Control, ControlAction, Controlled};

use super::Problem;
use super::answer::Answer;
use super::asked::CallKey;
use super::view::run_view;
use super::wait::found;
use crate::access::Caller;
use crate::api::{ControlAnswer, Permission};
use crate::app::App;

/// A call with the permission `operate`.
pub(super) struct OperatorCall {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    pub(super) key: CallKey,
}

impl FromRequestParts<Arc<App>> for OperatorCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.may(Permission::Operate)?;
        let key = CallKey::from_request_parts(parts, app).await?;
        Ok(Self { app: app.clone(), caller, key })
    }
}

impl OperatorCall {
    /// Controls a run. The header `Idempotency-Key` is the id under which the call may be repeated.
    pub(super) async fn control(
        self,
        run: RunId,
        action: ControlAction,
        expected: Option<u64>,
    ) -> Result<(Answer<ControlAnswer>, Controlled), Problem> {
        let workspace = self.caller.workspace;
        let control = Control { workspace, run, action, by: self.caller.name, id: self.key.0, expected };
        let app = &self.app;
        let controlled = app.bounds.open_runs.control(&*app.store, app.clock.now(), control).await?;
        // The header does not say how a run ended. The control has taken place even if this read fails; its error is
        // in the log.
        let ended = match controlled.run.status().is_terminal() {
            true => found(&self.app, workspace, controlled.run.id()).await.ok(),
            false => None,
        };
        let (run, outcome) = ended.unwrap_or_else(|| (controlled.run.clone(), None));
        let answer = ControlAnswer { run: run_view(&run, outcome.as_ref()), changed: controlled.changed };
        Ok((Answer::ok(answer).replayed(controlled.repeated), controlled))
    }
}
