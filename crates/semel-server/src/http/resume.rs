//! `POST /workflow-runs/resume`: resumes many paused runs in one call, by the reason of their pause.

use std::sync::Arc;

use semel::Error;
use semel::rules::control::{Control, ControlAction};
use semel::rules::entry::PauseReason;
use semel::rules::key::CallId;
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{Page, Query};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::limit_of;
use super::call::OperatorCall;
use super::describe::{Always, Changes, IdempotencyKey};
use super::runs::{page, run_id};
use super::start::{derived, name};
use super::steps::last_pause;
use super::{Body, Problem};
use crate::api::{PauseKind, ResumeRuns, ResumedRuns};
use crate::app::App;

/// Paused runs that one call examines if no limit is given.
const LOOKED_AT: usize = 100;
/// Maximum number of paused runs that one call examines: each costs a read and a write.
const MOST: usize = 500;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(resume))
}

/// Resume paused runs
///
/// Resumes all runs that are paused for one reason, a page at a time: repeat the call with `next` until it is absent.
/// Under one `Idempotency-Key` a run is resumed once, even if it has been paused again when the call is repeated.
#[utoipa::path(
    post,
    path = "/workflow-runs/resume",
    operation_id = "resumeRuns",
    tag = "control",
    params(IdempotencyKey),
    request_body(content = ResumeRuns, example = json!({"reason": "poisoned"})),
    responses((status = 200, description = "The resumed runs", body = ResumedRuns), Always, Changes),
)]
async fn resume(call: OperatorCall, Body(asked): Body<ResumeRuns>) -> Result<Answer<ResumedRuns>, Problem> {
    let query = Query {
        status: vec![Status::Paused],
        workflow: asked.workflow.as_deref().map(name).transpose()?.into_iter().collect(),
        before: asked.cursor.as_deref().map(run_id).transpose()?,
        ..Query::all(call.caller.workspace, limit_of(asked.limit, LOOKED_AT, MOST)?)
    };
    let Page { runs, next, .. } = page(&call.app, query).await?;
    let mut resumed = Vec::new();
    for run in runs {
        let reason = last_pause(&call.app, &run).await?;
        if reason.is_some_and(|reason| kind(&reason) == Some(asked.reason)) && resumes(&call, &run).await? {
            resumed.push(run.id().to_string());
        }
    }
    Ok(Answer::ok(ResumedRuns { resumed, next: next.map(|run| run.to_string()) }))
}

fn kind(reason: &PauseReason) -> Option<PauseKind> {
    match reason {
        PauseReason::Operator { .. } => Some(PauseKind::Operator),
        PauseReason::Poisoned => Some(PauseKind::Poisoned),
        PauseReason::Diverged(_) => Some(PauseKind::Diverged),
        PauseReason::InDoubt => None,
    }
}

/// Resumes one run, if it is unchanged since it was read. Returns whether this call did it.
async fn resumes(call: &OperatorCall, run: &Run) -> Result<bool, Problem> {
    let id = match &call.key.0 {
        Some(key) => {
            let id = derived(&["resume", key.as_str(), &run.id().to_string()])?;
            Some(CallId::new(id).map_err(Error::from)?)
        }
        None => None,
    };
    let control = Control {
        workspace: run.new.workspace,
        run: run.id(),
        action: ControlAction::Resume,
        by: call.caller.name.clone(),
        id,
        expected: Some(run.state.version),
    };
    match call.app.store.control(control).await {
        Ok(controlled) => Ok(controlled.changed),
        // Another call was first.
        Err(Error::Concurrency { .. } | Error::RunFinished { .. } | Error::RunNotFound(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
