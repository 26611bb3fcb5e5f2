//! Start and deliver, as an engine elsewhere does.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use futures_util::future::join_all;
use semel::error::{Error, Result};
use semel::id::WorkspaceId;
use semel::remote::wire::{self, Answers, StartCall};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::ledger::Ledger;
use semel::rules::start::Start;
use semel::store::Started;

use super::answer::{Call, Refusal, Told};
use super::{Shared, Workers, node};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};

/// Start many runs, each with its own answer; a run may come with the worker's claim.
#[utoipa::path(
    post, path = "/workers/start",
    operation_id = "workerStart", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"starts": []})),
    responses((status = 200, body = Object, description = "One answer for each start"), Always, OfRun, Changes),
)]
pub(super) async fn start(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(StartCall { starts }): Call<StartCall>,
) -> Result<Told<Answers<Started>>, Refusal> {
    caller.may(Permission::Start)?;
    if starts.iter().any(|start| start.claim.is_some()) {
        caller.may(Permission::Worker)?;
    }
    if starts.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} starts in one call", wire::MOST)).into());
    }
    // The call itself has counted for the first.
    let admitted = 1 + app.access.admit_more(&caller, starts.len().saturating_sub(1), app.clock.now());
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    // Apart from the connection: what was asked is done, whether or not somebody is left to hear it.
    let done = tokio::spawn(async move {
        let (app, workers) = (&*app, &*workers);
        let each = |(place, start)| async move {
            match place < admitted {
                true => begin(app, workers, caller.workspace, start).await,
                false => Err(Error::Unavailable("this workspace starts too many runs a second".into())),
            }
        };
        join_all(starts.into_iter().enumerate().map(each)).await
    });
    let mut answers = done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    answers.iter_mut().flatten().for_each(|started| numbers.in_run(&mut started.run));
    Ok(Told(Answers { answers: answers.into_iter().map(Into::into).collect() }))
}

async fn begin(app: &App, workers: &Workers, workspace: WorkspaceId, start: Start) -> Result<Started> {
    start.input.check()?;
    if let Some(handover) = &start.deliver {
        handover.payload.check()?;
    }
    let claim = start.claim.map(|drawn| node::of(workspace, drawn));
    let started = app.store.start(Start { workspace, claim, ..start }).await?;
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
    request_body(content = Object, content_type = "application/json", example = json!({"token": "order:7", "payload": {"approved": true}, "id": null})),
    responses((status = 200, body = Object, description = "Who got it"), Always, OfRun, Changes),
)]
pub(super) async fn deliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(deliver): Call<Deliver>,
) -> Result<Told<Delivered>, Refusal> {
    caller.may(Permission::Start)?;
    deliver.payload.check().map_err(semel::Error::from)?;
    Ok(Told(app.store.deliver(Deliver { workspace: caller.workspace, ..deliver }).await?))
}
