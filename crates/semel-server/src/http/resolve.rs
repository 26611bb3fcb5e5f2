//! `POST /workflow-runs/{id}/steps/{path}/resolve`: decides a step in doubt.
//!
//! The path is one part of the address, percent-encoded: `left/pack[item-3]` is `left%2Fpack%5Bitem-3%5D`.

use std::sync::Arc;

use semel::rules::control::ControlAction;
use semel::rules::entry::{Failure, FailureKind, Resolution};
use semel::rules::json::Payload;
use semel::rules::path::{Path, Visit};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::PathOf;
use super::call::OperatorCall;
use super::describe::{Always, Changes, IdempotencyKey, OfRun, RunParam};
use super::runs::run_id;
use super::start::payload;
use super::{Body, Problem};
use crate::api::{ControlAnswer, ResolutionView, ResolveStep};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(resolve))
}

/// Resolve a step in doubt
///
/// Says what happened to a step whose outcome is unknown after a crash: it happened, with this result; it did not, so
/// run it again; or give up. When the last doubt is resolved, the paused run continues.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/steps/{path}/resolve",
    operation_id = "resolveStep",
    tag = "control",
    params(
        RunParam,
        ("path" = String, Path, description = "The path of the step as one part of the address, percent-encoded: `left%2Fpack%5Bitem-3%5D` for `left/pack[item-3]`", example = "charge"),
        IdempotencyKey,
    ),
    request_body(content = ResolveStep, example = json!({"resolution": "happened", "value": {"charge": "ch_7"}})),
    responses((status = 200, description = "The run after the call", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn resolve(
    call: OperatorCall,
    PathOf((id, path)): PathOf<(String, String)>,
    Body(asked): Body<ResolveStep>,
) -> Result<Answer<ControlAnswer>, Problem> {
    let run = run_id(&id)?;
    let path = Path::parse(&path).map_err(semel::Error::from)?;
    let tick = asked.tick.unwrap_or(1);
    if tick == 0 {
        return Err(Problem::validation("`tick` is a number from 1: which visit of the path is meant"));
    }
    let step = Visit { path, tick };
    let resolution = resolution(asked)?;
    Ok(call.control(run, ControlAction::Resolve { step, resolution }, None).await?.0)
}

fn resolution(asked: ResolveStep) -> Result<Resolution, Problem> {
    let ResolveStep { resolution, value, message, code, data, .. } = asked;
    let has_error = message.is_some() || code.is_some() || data.is_some();
    match (resolution, value, has_error) {
        (ResolutionView::Happened, value, false) => {
            let value = value.as_ref().map_or(Ok(Payload::null()), payload)?;
            Ok(Resolution::Happened(value))
        }
        (ResolutionView::DidNotHappen, None, false) => Ok(Resolution::DidNotHappen),
        (ResolutionView::GiveUp, None, _) => {
            let message = message.unwrap_or_else(|| "given up by an operator".to_owned());
            let data = data.as_ref().map(payload).transpose()?;
            Ok(Resolution::GiveUp(Failure { kind: FailureKind::Fatal, message, code, data }))
        }
        _ => Err(Problem::validation(
            "`value` goes with `happened` only; `message`, `code` and `data` go with `give-up` only",
        )),
    }
}
