//! `POST /workflow-runs/batch`: several starts in one request.

use std::sync::Arc;

use axum::extract::State;
use futures_util::future::join_all;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::CallKey;
use super::describe::{Always, Oversize};
use super::start::{absorbed, begin, derived, start_view};
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{BatchAnswer, BatchResult, Permission, StartBatch, StartRun};
use crate::app::App;

/// Maximum number of starts in one call: they share one durable write, and the answer stays below 2 MiB.
pub const MAX_BATCH: usize = 1_000;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(start_batch))
}

/// Start many runs
///
/// Each start is decided independently and has its own answer, in the same order. All of them share durable writes. A
/// start without a key gets one that is derived from the header `Idempotency-Key`, if present, and its position; so
/// the whole batch may be repeated. Each start counts as one call for the workspace's rate limit: starts beyond it
/// are answered with 429, and the others take place.
#[utoipa::path(
    post,
    path = "/workflow-runs/batch",
    operation_id = "startRuns",
    tag = "runs",
    params(super::describe::IdempotencyKey),
    request_body(content = StartBatch, example = json!({"runs": [
        {"workflow": "demo-order", "input": {"order": "7", "amount": 1999}, "idempotencyKey": "order-7"},
        {"workflow": "demo-order", "input": {"order": "8", "amount": 500}, "idempotencyKey": "order-8"},
    ]})),
    responses(
        (status = 200, description = "One result per start", body = BatchAnswer, headers(
            ("Idempotent-Replayed" = String, description = "`true` if every start was a repetition"),
        )),
        Always,
        Oversize,
    ),
)]
async fn start_batch(
    State(app): State<Arc<App>>,
    caller: Caller,
    key: CallKey,
    Body(batch): Body<StartBatch>,
) -> Result<Answer<BatchAnswer>, Problem> {
    caller.may(Permission::Start)?;
    if batch.runs.len() > MAX_BATCH {
        let count = batch.runs.len();
        return Err(Problem::validation(format!("{count} starts in one batch; send at most {MAX_BATCH}")));
    }
    // The call itself has counted as the first start.
    let admitted = 1 + app.access.admit_more(&caller, batch.runs.len().saturating_sub(1), app.clock.now());
    let starts = batch.runs.into_iter().enumerate();
    let each = |(place, asked)| one(&app, &caller, &key, (place, place < admitted), asked);
    let results = join_all(starts.map(each)).await;
    let replayed = !results.is_empty() && results.iter().all(|(_, absorbed)| *absorbed);
    let results = results.into_iter().map(|(result, _)| result).collect();
    Ok(Answer::ok(BatchAnswer { results }).replayed(replayed))
}

/// The answer to one start, and whether it was absorbed.
async fn one(
    app: &App,
    caller: &Caller,
    header: &CallKey,
    (place, admitted): (usize, bool),
    asked: StartRun,
) -> (BatchResult, bool) {
    let answer = match admitted {
        true => try_one(app, caller, header, place, asked).await,
        false => {
            Err(Problem::rate_limited("this workspace starts too many runs per second; start this one later"))
        }
    };
    match answer {
        Ok(answer) => answer,
        Err(problem) => {
            let result = BatchResult { status: problem.status(), start: None, problem: Some(problem.view()) };
            (result, false)
        }
    }
}

async fn try_one(
    app: &App,
    caller: &Caller,
    header: &CallKey,
    place: usize,
    asked: StartRun,
) -> Result<(BatchResult, bool), Problem> {
    let key = match (&asked.idempotency_key, header.text()) {
        (Some(key), _) => Some(key.clone()),
        (None, Some(header)) => Some(derived(&["batch", header, &place.to_string()])?),
        (None, None) => None,
    };
    let started = begin(app, caller, asked, key).await?;
    let status = if started.created() { 201 } else { 200 };
    let mut view = start_view(&started);
    app.services.mark(app, caller.workspace, &mut view.run).await;
    Ok((BatchResult { status, start: Some(view), problem: None }, absorbed(&started)))
}
