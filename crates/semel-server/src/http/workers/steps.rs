//! Steps of queues: taken, at once or as soon as there is one; completed, failed.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use semel::engine::queue::{Queues, Take, Taken, TaskRef};
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::remote::wire;
use semel::rules::claim::Drives;
use semel::rules::entry::Failure;
use semel::rules::json::Payload;
use semel::rules::queue::{self, Report, Task};

use super::answer::{Call, Refusal, Told};
use super::node::By;
use super::waiting::{Ask, Tried, Waiting};
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
    let (workspace, node) = (caller.workspace, node::of(caller.workspace, call.node));
    // One that takes nothing must not be called before those that do.
    let waits_for = if call.limit == 0 { Vec::new() } else { drives };
    let ask = Ask { workspace, node, workflows: waits_for, wait_ms: call.wait_ms };
    let take = || {
        let queues = Queues::new(app.store.clone(), app.clock.clone());
        let take = Take { workspace, node, queues: call.queues.clone(), limit: call.limit };
        async move {
            let Taken { tasks, next_due, more } = queues.take(take).await?;
            Ok(Tried { is_empty: tasks.is_empty(), more, next_due, found: tasks })
        }
        .boxed()
    };
    let tasks = Waiting::claim(&app, &workers, &ask, take).await;
    let tasks: Vec<Task> = tasks.map_err(|error| roster::own(error, node, call.node))?;
    workers.roster.handed((workspace, node), &tasks);
    Ok(Told(TaskList { tasks: tasks.into_iter().map(Into::into).collect() }))
}

/// Give the results of steps. A worker that has lost one is told so, and nothing is changed.
#[utoipa::path(
    post, path = "/workers/steps/complete", tag = "workers", operation_id = "completeSteps",
    request_body(content = CompleteSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d",
        "tasks": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "value": {"receipt": "A-1"}}]
    })),
    responses((status = 200, body = StepAnswers, description = "One answer for each step"), Always, Changes)
)]
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(CompleteSteps { node, tasks }): Call<CompleteSteps>,
) -> Result<Told<StepAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let said = tasks.into_iter().map(|CompletedStep { run, fence, value }| {
        let report = Payload::parse(value.get()).map(Report::Completed).map_err(semel::Error::from);
        (run, fence, report)
    });
    let said = said.collect();
    report(app, workers, caller.workspace, By::of(&caller, node), said).await
}

/// Say that steps have failed. Whether they are tried again is their workflow's decision.
#[utoipa::path(
    post, path = "/workers/steps/fail", tag = "workers", operation_id = "failSteps",
    request_body(content = FailSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d",
        "tasks": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "message": "the provider is busy"}]
    })),
    responses((status = 200, body = StepAnswers, description = "One answer for each step"), Always, Changes)
)]
pub(super) async fn fail(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(FailSteps { node, tasks }): Call<FailSteps>,
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
    let said = said.collect();
    report(app, workers, caller.workspace, By::of(&caller, node), said).await
}

/// What came of one step.
type Said = (RunId, u64, Result<Report>);

async fn report(
    app: Arc<App>,
    workers: Arc<Workers>,
    workspace: WorkspaceId,
    by: By,
    said: Vec<Said>,
) -> Result<Told<StepAnswers>, Refusal> {
    if said.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} steps in one call", wire::MOST)).into());
    }
    let queues = Queues::new(app.store.clone(), app.clock.clone());
    // Apart from the connection: what was said is noted, whether or not somebody is left to hear it.
    let done = tokio::spawn(async move {
        let each = said.into_iter().map(|(run, fence, report)| {
            let (app, workers, queues, by) = (&*app, &*workers, &queues, &by);
            async move {
                let noted = match report {
                    Ok(report) => {
                        let task = TaskRef { workspace, run, fence };
                        report_one(app, workers, queues, by, task, report).await
                    }
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

async fn report_one(
    app: &App,
    workers: &Workers,
    queues: &Queues,
    by: &By,
    task: TaskRef,
    report: Report,
) -> Result<()> {
    let handed_out = queues.handed_out(task).await?;
    let place = (task.workspace, handed_out.node());
    if by.speaks_for(app, &workers.roster, task.workspace, handed_out.node()).await? {
        let due = queues.report_on(&handed_out, &report).await;
        workers.roster.reported(place, task.run);
        // One that is tried again rests until then.
        due?.into_iter().for_each(|due| workers.waiting.rests_until(due));
        return Ok(());
    }
    // A repetition changes nothing, and is answered as the first time.
    if handed_out.is_reported(&report) { Ok(()) } else { Err(handed_out.lost()) }
}
