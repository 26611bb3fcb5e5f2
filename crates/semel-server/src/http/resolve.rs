//! `POST /workflow-runs/{id}/steps/{path}/resolve`: what became of a step in doubt.
//!
//! The path is one part of the address, percent-encoded: `left/pack[item-3]` is `left%2Fpack%5Bitem-3%5D`.

use std::sync::Arc;

use semel::rules::control::Action;
use semel::rules::entry::{Failure, FailureKind, Resolution};
use semel::rules::json::Payload;
use semel::rules::path::{Path, Visit};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::At;
use super::call::Call;
use super::describe::{Always, Changes, IdempotencyKey, OfRun, RunParam};
use super::runs::run_id;
use super::start::payload;
use super::{Body, Problem};
use crate::api::{ControlAnswer, ResolutionView, ResolveStep};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(resolve))
}

/// Resolve a doubt
///
/// Says what became of a step whose end a crash has hidden: it happened, with this result; it did not, run it again; or
/// give up. When the last doubt is gone, the run that was paused over it goes on.
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
    responses((status = 200, description = "The run as it is now", body = ControlAnswer), Always, OfRun, Changes),
)]
async fn resolve(
    call: Call,
    At((id, path)): At<(String, String)>,
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
    Ok(call.control(run, Action::Resolve { step, resolution }, None).await?.0)
}

fn resolution(asked: ResolveStep) -> Result<Resolution, Problem> {
    let ResolveStep { resolution, value, message, .. } = asked;
    match (resolution, value, message) {
        (ResolutionView::Happened, value, None) => {
            let value = value.as_ref().map_or(Ok(Payload::null()), payload)?;
            Ok(Resolution::Happened(value))
        }
        (ResolutionView::DidNotHappen, None, None) => Ok(Resolution::DidNotHappen),
        (ResolutionView::GiveUp, None, message) => {
            let message = message.unwrap_or_else(|| "given up by an operator".to_owned());
            Ok(Resolution::GiveUp(Failure { kind: FailureKind::Fatal, message }))
        }
        _ => Err(Problem::validation("`value` goes with `happened` only, and `message` with `give-up` only")),
    }
}
