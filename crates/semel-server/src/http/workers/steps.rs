//! Steps of queues: taken, at once or as soon as there is one; completed, failed.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::future::join_all;
use semel::engine::queue::{Queues, Take, TaskRef};
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::remote::wire;
use semel::rules::claim::Drives;
use semel::rules::entry::Failure;
use semel::rules::json::Payload;
use semel::rules::queue::{self, Report, Task};

use super::answer::{Call, Refusal, Told};
use super::claim::{next_look, something_due};
use super::{Shared, Workers, node, roster};
use crate::access::Caller;
use crate::api::{
    CompleteSteps, CompletedStep, FailSteps, FailedStep, Permission, StepAnswer, StepAnswers, TakeSteps,
    TaskList,
};
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes};

/// At most so many queues are asked for.
const MOST_QUEUES: usize = 100;
/// The longest message of a failure, in bytes.
const LONGEST_MESSAGE: usize = 10_000;

/// Take steps from queues, each with its stable key.
#[utoipa::path(
    post, path = "/workers/steps/claim", tag = "workers", operation_id = "claimSteps",
    request_body(content = TakeSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d", "queues": ["payments"], "limit": 10, "waitMs": 30000
    })),
    responses((status = 200, body = TaskList, description = "What the worker is to do"), Always, Changes)
)]
pub(super) async fn claim(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(call): Call<TakeSteps>,
) -> Result<Told<TaskList>, Refusal> {
    caller.may(Permission::Worker)?;
    if call.limit > wire::MOST || call.queues.len() > MOST_QUEUES || call.wait_ms > wire::MOST_WAIT_MS {
        return Err(Problem::validation(format!(
            "at most {} steps of {MOST_QUEUES} queues, after at most {} ms",
            wire::MOST,
            wire::MOST_WAIT_MS
        ))
        .into());
    }
    let drives = call.queues.iter().map(|queue| queue::drives(caller.workspace, queue));
    let drives = drives.collect::<Result<Vec<Drives>, _>>().map_err(semel::Error::from)?;
    let _place = (call.wait_ms > 0).then(|| app.bounds.wait(caller.workspace)).transpose()?;
    let served = drives.iter().map(|drives| drives.workflow.to_string());
    workers.roster.serves(&app, caller.workspace, call.node, served);
    let tasks = wait(&app, &workers, caller.workspace, &call, drives).await?;
    Ok(Told(TaskList { tasks: tasks.into_iter().map(Into::into).collect() }))
}

/// Of those who wait for the same, one looks; the others wait for its turn to end.
async fn wait(
    app: &App,
    workers: &Workers,
    workspace: WorkspaceId,
    call: &TakeSteps,
    drives: Vec<Drives>,
) -> Result<Vec<Task>> {
    let end = app.clock.now().after(Duration::from_millis(call.wait_ms));
    let (node, queues) = (node::of(workspace, call.node), Queues::new(app.store.clone(), app.clock.clone()));
    let take = async || {
        let take = Take { workspace, node, queues: call.queues.clone(), limit: call.limit };
        queues.take(take).await.map_err(|error| roster::own(error, node, call.node))
    };
    if call.wait_ms == 0 {
        return Ok(take().await?.tasks);
    }
    let turn = workers.turns.of(drives);
    let _turn = tokio::select! {
        turn = turn.lock() => turn,
        () = app.clock.until(end) => return Ok(Vec::new()),
    };
    // Before the first look: what becomes due after it is heard.
    let mut wakes = app.store.wakes();
    loop {
        let look = app.bounds.look(workspace, call.queues.len()).await;
        let taken = take().await?;
        drop(look);
        let now = app.clock.now();
        if !taken.tasks.is_empty() || now >= end || app.stop.is_ordered() {
            return Ok(taken.tasks);
        }
        if taken.more {
            continue;
        }
        tokio::select! {
            () = something_due(&mut wakes) => {}
            () = app.clock.until(next_look(now, taken.next_due).min(end)) => {}
            () = app.stop.ordered() => {}
        }
    }
}

/// Give the results of steps. A worker that has lost one is told so, and nothing is changed.
#[utoipa::path(
    post, path = "/workers/steps/complete", tag = "workers", operation_id = "completeSteps",
    request_body(content = CompleteSteps, example = json!({
        "tasks": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "value": {"receipt": "A-1"}}]
    })),
    responses((status = 200, body = StepAnswers, description = "One answer for each step"), Always, Changes)
)]
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(CompleteSteps { tasks }): Call<CompleteSteps>,
) -> Result<Told<StepAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let said = tasks.into_iter().map(|CompletedStep { run, fence, value }| {
        let report = Payload::parse(value.get()).map(Report::Completed).map_err(semel::Error::from);
        (run, fence, report)
    });
    report(app, caller.workspace, said.collect()).await
}

/// Say that steps have failed. Whether they are tried again is their workflow's decision.
#[utoipa::path(
    post, path = "/workers/steps/fail", tag = "workers", operation_id = "failSteps",
    request_body(content = FailSteps, example = json!({
        "tasks": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "message": "the provider is busy"}]
    })),
    responses((status = 200, body = StepAnswers, description = "One answer for each step"), Always, Changes)
)]
pub(super) async fn fail(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(FailSteps { tasks }): Call<FailSteps>,
) -> Result<Told<StepAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let said = tasks.into_iter().map(|FailedStep { run, fence, kind, message, retry_after_ms }| {
        let retry_after = retry_after_ms.map(Duration::from_millis);
        let report = match message.len() {
            0..=LONGEST_MESSAGE => Ok(Report::Failed { error: Failure { kind, message }, retry_after }),
            _ => Err(semel::Error::Validation(format!("a message has at most {LONGEST_MESSAGE} bytes"))),
        };
        (run, fence, report)
    });
    report(app, caller.workspace, said.collect()).await
}

/// What came of one step.
type Said = (RunId, u64, Result<Report>);

async fn report(
    app: Arc<App>,
    workspace: WorkspaceId,
    said: Vec<Said>,
) -> Result<Told<StepAnswers>, Refusal> {
    if said.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} steps in one call", wire::MOST)).into());
    }
    let queues = Queues::new(app.store.clone(), app.clock.clone());
    // Apart from the connection: what was said is noted, whether or not somebody is left to hear it.
    let done = tokio::spawn(async move {
        let each = said.into_iter().map(|(run, fence, report)| {
            let queues = &queues;
            async move {
                let noted = match report {
                    Ok(report) => queues.report(TaskRef { workspace, run, fence }, report).await,
                    Err(error) => Err(error),
                };
                let problem = noted.err().map(Problem::from);
                StepAnswer {
                    run: run.to_string(),
                    status: problem.as_ref().map_or(200, Problem::status),
                    problem: problem.map(|problem| problem.view()),
                }
            }
        });
        join_all(each).await
    });
    let results = done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    Ok(Told(StepAnswers { results }))
}
