//! `POST /workflow-runs/{id}/cancel | pause | resume | retry | restart | fork`.

use std::sync::Arc;

use semel::id::RunId;
use semel::rules::control::{ControlAction, Fork};
use semel::rules::entry::RestartFrom;
use semel::rules::key::Key;
use semel::rules::ledger::Lineage;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::PathOf;
use super::call::OperatorCall;
use super::describe::{Always, Changes, IdempotencyKey, OfRun, RunParam};
use super::runs::run_id;
use super::{Body, Problem};
use crate::api::{CancelRun, ControlAnswer, ControlRun, ForkRun, RestartRun};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(cancel))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(retry))
        .routes(routes!(restart))
        .routes(routes!(fork))
}

type Answered = Result<Answer<ControlAnswer>, Problem>;

/// Cancel a run
///
/// The first call to end a run wins: `changed` says whether it was this one. After a successful cancel nothing more
/// of the run is recorded, and no step begins once its node has learnt of the cancel. With `graceful`, the run is
/// asked to end and cleans up first.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/cancel",
    operation_id = "cancelRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = CancelRun, example = json!({"reason": "the customer changed their mind"})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn cancel(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<CancelRun>) -> Answered {
    let reason = asked.reason.unwrap_or_else(|| format!("asked for by {}", call.caller.name));
    let action = match asked.graceful {
        true => ControlAction::RequestCancel { reason },
        false => ControlAction::Cancel { reason },
    };
    Ok(call.control(run_id(&id)?, action, asked.expected_version).await?.0)
}

/// Pause a run
///
/// The run does not continue until it is resumed.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/pause",
    operation_id = "pauseRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = ControlRun, example = json!({})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn pause(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<ControlRun>) -> Answered {
    Ok(call.control(run_id(&id)?, ControlAction::Pause, asked.expected_version).await?.0)
}

/// Resume a paused run
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/resume",
    operation_id = "resumeRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = ControlRun, example = json!({})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn resume(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<ControlRun>) -> Answered {
    Ok(call.control(run_id(&id)?, ControlAction::Resume, asked.expected_version).await?.0)
}

/// Retry a failed run
///
/// A failed or timed-out run continues where it failed; recorded results are kept. The same as a restart from
/// `failure`.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/retry",
    operation_id = "retryRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = ControlRun, example = json!({})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn retry(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<ControlRun>) -> Answered {
    let action = ControlAction::Restart(RestartFrom::Failure);
    Ok(call.control(run_id(&id)?, action, asked.expected_version).await?.0)
}

/// Restart a failed run
///
/// A failed or timed-out run starts again, by default where it failed. Its effects keep their effect keys.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/restart",
    operation_id = "restartRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = RestartRun, example = json!({"from": "beginning"})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn restart(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<RestartRun>) -> Answered {
    let action = ControlAction::Restart(asked.from.unwrap_or(RestartFrom::Failure));
    Ok(call.control(run_id(&id)?, action, asked.expected_version).await?.0)
}

/// Fork a run
///
/// Creates a new run with the first `at` entries of this one. Without fresh keys it shares this run's effect keys, so
/// that providers recognise repeated effects.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/fork",
    operation_id = "forkRun",
    tag = "control",
    params(RunParam, IdempotencyKey),
    request_body(content = ForkRun, example = json!({"freshKeys": true})),
    responses(
        (status = 201, description = "The new run", body = ControlAnswer, headers(
            ("Location" = String, description = "The new run"),
        )),
        (status = 200, description = "The run that an earlier call under the same id created", body = ControlAnswer, headers(
            ("Location" = String, description = "The new run"),
        )),
        Always,
        OfRun,
        Changes,
    ),
)]
async fn fork(call: OperatorCall, PathOf(id): PathOf<String>, Body(asked): Body<ForkRun>) -> Answered {
    let fork = Fork {
        run: RunId(call.app.clock.uuid()),
        key: asked.key.map(Key::new).transpose().map_err(semel::Error::from)?,
        at: asked.at,
        lineage: if asked.fresh_keys { Lineage::Fresh } else { Lineage::Inherited },
    };
    let (answer, forked) =
        call.control(run_id(&id)?, ControlAction::Fork(fork), asked.expected_version).await?;
    Ok(answer.made(!forked.repeated, &forked.run.id().to_string()))
}
