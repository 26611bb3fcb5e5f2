//! `POST /workflow-runs/{id}/replay`: what the code of a run would do today, compared with what it did.
//!
//! The server replays runs whose code its own engine has: definitions and built-in workflows. For other runs it answers with the
//! history; a program with the code replays that: `Engine::replay_history`, or a test in CI.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use semel::engine::replay::{ReplayRow, ReplayVerdict};
use semel::rules::entry::Entry;
use semel::{Engine, History, Replay};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf};
use super::describe::{Always, OfRun, RunParam};
use super::runs::run_id;
use crate::access::Caller;
use crate::api::{Permission, ReplayCounts, ReplayDiff, ReplayRowView};
use crate::app::App;

/// Maximum size of a history that is replayed or handed out, in bytes. Longer ones are read page by page.
const HISTORY_BYTES: usize = 64 * 1024 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(replay))
}

/// Query of a replay.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReplayQuery {
    /// Whether the answer is the history in any case. If absent, it is the comparison where the server has the code.
    history: Option<bool>,
}

/// Replay a run
///
/// Where the server has the code (definitions, and what is built in), the answer compares what the code does now with what is
/// recorded, part by part; nothing is called and nothing is written. For other runs, and with `history=true`, it is the history
/// (`semel/history/1`): the run's header and whole ledger in one document, to be replayed where the code is. A history of more than
/// 64 MiB is refused: read its ledger page by page.
#[utoipa::path(
    post,
    path = "/workflow-runs/{id}/replay",
    operation_id = "replayRun",
    tag = "control",
    params(RunParam, ReplayQuery),
    responses((status = 200, description = "The comparison, or the history, which has a `format`", body = ReplayDiff), Always, OfRun),
)]
async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<ReplayQuery>,
) -> Result<Response, Problem> {
    caller.may(Permission::Read)?;
    let run = run_id(&id)?;
    let turn = app.bounds.replays.acquire().await;
    let _turn = turn.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    let history = History::of_at_most(&*app.store, caller.workspace, run, HISTORY_BYTES).await?;
    if !asked.history.unwrap_or(false)
        && let Some(engine) = engine_of(&app, &caller, &history).await?
    {
        return Ok(Answer::ok(diff(&engine.replay_history(&history).await?)).into_response());
    }
    Ok(Answer::ok(history).into_response())
}

/// The engine of this process, if it has the code of the run.
async fn engine_of(app: &App, caller: &Caller, history: &History) -> Result<Option<Engine>, Problem> {
    let Some(Entry::Created(created)) = history.entries.first().map(|line| &line.entry) else {
        return Ok(None);
    };
    let (workflow, version) = (&created.workflow, &created.workflow_version);
    if !app.drives(caller.workspace, workflow.as_str(), version.as_str()) {
        return Ok(None);
    }
    // The replay waits for nothing but the ledger, so a definition has to be in memory before.
    app.catalog.load(caller.workspace, version.as_str()).await?;
    Ok(app.engine.as_ref().map(|engine| engine.in_workspace(caller.workspace)))
}

fn diff(replay: &Replay) -> ReplayDiff {
    let count = |verdict| replay.count(verdict);
    ReplayDiff {
        run: replay.run.to_string(),
        workflow: replay.workflow.clone(),
        status: replay.status,
        version: replay.version,
        identical: replay.is_identical(),
        summary: ReplayCounts {
            identical: count(ReplayVerdict::Identical),
            changed: count(ReplayVerdict::Changed),
            missing: count(ReplayVerdict::Missing),
            added: count(ReplayVerdict::Added),
        },
        rows: replay.rows.iter().map(row).collect(),
    }
}

fn row(row: &ReplayRow) -> ReplayRowView {
    ReplayRowView {
        path: row.path.clone(),
        kind: row.kind,
        original: row.original.clone(),
        replayed: row.replayed.clone(),
        verdict: row.verdict,
    }
}
