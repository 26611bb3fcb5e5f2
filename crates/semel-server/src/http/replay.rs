//! `POST /workflow-runs/{id}/replay`: what a replay needs.
//!
//! The server has no workflow code, and so cannot itself say what the code of today makes of a recorded run. It answers
//! with the run's history; whoever has the code replays that: `Engine::replay_history`, or a test in CI.

use std::sync::Arc;

use axum::extract::State;
use semel::History;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::At;
use super::describe::{Always, OfRun, RunParam};
use super::runs::run_id;
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(replay))
}

/// Get what a replay needs
///
/// The run's history (`semel/history/1`): its header and whole ledger in one document, with all inputs, results and
/// payloads as they are. The server has no workflow code; whoever has it replays this, calling nothing and writing nothing.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/replay",
    operation_id = "replayRun",
    tag = "control",
    params(RunParam),
    responses((status = 200, description = "The history", body = Object), Always, OfRun),
)]
async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    At(id): At<String>,
) -> Result<Answer<History>, Problem> {
    caller.may(Permission::Read)?;
    Ok(Answer::ok(History::of(&*app.store, caller.workspace, run_id(&id)?).await?))
}
