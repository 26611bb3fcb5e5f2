//! Start and deliver, for remote engines.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use futures_util::future::join_all;
use semel::error::{Error, Result};
use semel::id::WorkspaceId;
use semel::remote::wire::{
    self, Answers, DeliverCall, DeliveredPayload, LimitReached, StartCall, StartItem, StartedRun,
};
use semel::rules::ledger::Ledger;
use semel::rules::start::Start;
use semel::store::{Origin, Started};

use super::answer::{CallBody, Refusal, Told};
use super::{Shared, Workers, node};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::definitions::id::FAMILY;
use crate::http::Problem;
use crate::http::describe::{SpokenProtocol, WorkerProblems};

/// Answer to the starts of a call that exceed the rate of the workspace.
const TOO_MANY: &str = "this workspace starts too many runs per second; start this one later";

/// Start many runs, each with its own answer. A start may include a claim for the worker.
#[utoipa::path(
    post, path = "/workers/start",
    operation_id = "workerStart", tag = "workers",
    request_body(content = StartCall, content_type = "application/json", example = json!({"starts": []})),
    params(SpokenProtocol),
    responses((status = 200, body = Answers<StartedRun>, description = "One result per start"), WorkerProblems),
)]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(StartCall { starts }): CallBody<StartCall>,
) -> Result<Told<Answers<StartedRun>>, Refusal> {
    caller.may(Permission::Start)?;
    if starts.iter().any(|start| start.claim.is_some()) {
        caller.may(Permission::Worker)?;
    }
    if starts.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} starts in one call", wire::MOST)).into());
    }
    // The call itself has counted as the first start.
    let admitted = 1 + app.access.admit_more(&caller, starts.len().saturating_sub(1), app.clock.now());
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    // In a task of its own: the call completes even if the client disconnects.
    let origin = Origin::current().unwrap_or_default();
    let done = tokio::spawn(origin.around(async move {
        let (app, workers) = (&*app, &*workers);
        let each = |(place, start): (usize, StartItem)| async move {
            match place < admitted {
                true => begin(app, workers, caller.workspace, start).await,
                false => Err(Error::Unavailable(Box::new(LimitReached(TOO_MANY.to_owned())))),
            }
        };
        join_all(starts.into_iter().enumerate().map(each)).await
    }));
    let mut answers = done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    answers.iter_mut().flatten().for_each(|started| numbers.in_run(&mut started.run));
    let answers = answers.into_iter().map(|answer| answer.map(StartedRun::from).into()).collect();
    Ok(Told(Answers { answers }))
}

async fn begin(app: &App, workers: &Workers, workspace: WorkspaceId, item: StartItem) -> Result<Started> {
    let start = item.start(workspace);
    if start.workflow_version.as_str().starts_with(FAMILY) {
        return Err(Error::Validation(format!(
            "versions that begin with `{FAMILY}` are definitions; start one with POST /workflow-runs and `definitionId`"
        )));
    }
    start.input.check()?;
    if let Some(handover) = &start.deliver {
        if crate::approvals::is_token(handover.token.as_str()) {
            return Err(Error::Validation(
                "a start does not decide an approval: its own route does".to_owned(),
            ));
        }
        handover.payload.check()?;
    }
    let claim = start.claim.map(|drawn| node::of(workspace, drawn));
    let start = Start { claim, ..start };
    let started = app.bounds.open_runs.start(&*app.store, app.clock.now(), start).await?;
    workers.known.learn(started.run.id(), workspace);
    let mine = claim.is_some() && started.created() && started.run.state.node == claim;
    if mine && let Ok(ledger) = Ledger::read(started.run.clone(), started.entries.iter().cloned()) {
        workers.folds.claimed(ledger);
    }
    Ok(started)
}

/// Deliver a payload to the owner of a token.
#[utoipa::path(
    post, path = "/workers/deliver",
    operation_id = "workerDeliver", tag = "workers",
    request_body(content = DeliverCall, content_type = "application/json", example = json!({"token": "order:7", "payload": {"approved": true}, "id": null})),
    params(SpokenProtocol),
    responses((status = 200, body = DeliveredPayload, description = "The run that received the payload"), WorkerProblems),
)]
pub(super) async fn deliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(deliver): CallBody<DeliverCall>,
) -> Result<Told<DeliveredPayload>, Refusal> {
    caller.may(Permission::Start)?;
    crate::http::hooks::check_deliverable(deliver.token.as_str())?;
    deliver.payload.check().map_err(semel::Error::from)?;
    Ok(Told(app.store.deliver(deliver.deliver(caller.workspace)).await?.into()))
}
