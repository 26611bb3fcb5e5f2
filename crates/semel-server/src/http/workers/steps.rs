//! Remote steps: claim them, at once or as soon as there is one; complete or fail them.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use semel::engine::queue::{AssignmentRef, Assignments, Queues, Take};
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::remote::wire;
use semel::rules::claim::Drives;
use semel::rules::entry::Failure;
use semel::rules::json::Payload;
use semel::rules::queue::{self, Assignment, Report};
use semel::store::Origin;

use super::again::{ClaimKind, OnceClaimed, RepeatableClaim};
use super::answer::{CallBody, Refusal, Told};
use super::node::WriteBy;
use super::request::{ClaimRequest, ClaimWish};
use super::waiting::ClaimTried;
use super::{Shared, Workers, again, node};
use crate::access::Caller;
use crate::api::{
    AssignmentList, CompleteSteps, CompletedStep, FailSteps, FailedStep, Permission, StepAnswer, StepAnswers,
    TakeSteps,
};
use crate::app::App;
use crate::http::Problem;
use crate::http::asked::CallKey;
use crate::http::describe::{IdempotencyKey, SpokenProtocol, WorkerProblems};

/// Maximum number of queues in one claim.
const MOST_QUEUES: usize = 100;
/// Maximum length of a failure message, in bytes.
const LONGEST_MESSAGE: usize = 10_000;
/// Maximum length of a failure code, in bytes.
const LONGEST_CODE: usize = 200;

/// Take steps from queues, each with its stable effect key. With an `Idempotency-Key`, a repetition of the worker's last claim
/// of steps gets the same steps again.
#[utoipa::path(
    post, path = "/workers/steps/claim", tag = "workers", operation_id = "claimSteps",
    request_body(content = TakeSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d", "queues": ["payments"], "limit": 10, "waitMs": 30000
    })),
    params(IdempotencyKey, SpokenProtocol),
    responses((status = 200, body = AssignmentList, description = "The steps that the worker executes"), WorkerProblems)
)]
pub(super) async fn claim(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    key: CallKey,
    CallBody(call): CallBody<TakeSteps>,
) -> Result<Told<AssignmentList>, Refusal> {
    caller.may(Permission::Worker)?;
    let place = (caller.workspace, node::of(caller.workspace, call.node));
    let drives = call.queues.iter().map(|queue| queue::drives(caller.workspace, queue));
    let wanted = ClaimWish {
        node: call.node,
        drives: drives.collect::<Result<Vec<Drives>, _>>().map_err(semel::Error::from)?,
        most: MOST_QUEUES,
        limit: call.limit,
        wait_ms: call.wait_ms,
        looks: call.look,
    };
    let request = ClaimRequest::checked(&app, &workers, &caller, wanted)?;
    if call.look {
        let next_due = request.look(&app, &workers).await?;
        let due = next_due.is_some_and(|due| due <= app.clock.now());
        return Ok(Told(AssignmentList { steps: Vec::new(), due, repeated: false }));
    }
    let claim = take(app.clone(), workers.clone(), request, call);
    let claimed = match key.0 {
        None => OnceClaimed::Now(claim.await?),
        Some(id) => {
            let runs = |taken: &Vec<Assignment>| taken.iter().map(|step| step.run).collect();
            let kind = ClaimKind::Steps;
            again::once(workers.clone(), RepeatableClaim { kind, place, id }, claim, runs).await?
        }
    };
    let (taken, repeated) = match claimed {
        OnceClaimed::Now(taken) => (taken, false),
        OnceClaimed::Before(runs) => {
            let held = again::held(&app, place, &runs, usize::MAX).await?;
            let queues = Queues::new(app.store.clone(), app.clock.clone());
            (queues.take_again(place.0, held.claims.runs).await, true)
        }
    };
    workers.roster.handed(place, &taken);
    Ok(Told(AssignmentList { steps: taken.into_iter().map(Into::into).collect(), due: false, repeated }))
}

async fn take(
    app: Arc<App>,
    workers: Arc<Workers>,
    request: ClaimRequest,
    call: TakeSteps,
) -> Result<Vec<Assignment>, Refusal> {
    let (workspace, node) = (request.workspace, request.node);
    let take = || {
        let queues = Queues::new(app.store.clone(), app.clock.clone());
        let take = Take { workspace, node, queues: call.queues.clone(), limit: call.limit };
        async move {
            let Assignments { tasks, next_due, more } = queues.take(take).await?;
            Ok(ClaimTried { is_empty: tasks.is_empty(), more, next_due, found: tasks })
        }
        .boxed()
    };
    request.claim(&app, &workers, take).await
}

/// Report results of steps. A step that the worker has lost is refused, and nothing is changed.
#[utoipa::path(
    post, path = "/workers/steps/complete", tag = "workers", operation_id = "completeSteps",
    request_body(content = CompleteSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d",
        "steps": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "value": {"receipt": "A-1"}}]
    })),
    params(SpokenProtocol),
    responses((status = 200, body = StepAnswers, description = "One result per report"), WorkerProblems)
)]
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(CompleteSteps { node, steps }): CallBody<CompleteSteps>,
) -> Result<Told<StepAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let said = steps.into_iter().map(|CompletedStep { run, fence, value }| {
        let report = Payload::parse(value.get()).map(Report::Completed).map_err(semel::Error::from);
        (run, fence, report)
    });
    let said = said.collect();
    report(app, workers, caller.workspace, WriteBy::of(&caller, node), said).await
}

/// Report failures of steps. The workflow's retry policy decides whether they are tried again.
#[utoipa::path(
    post, path = "/workers/steps/fail", tag = "workers", operation_id = "failSteps",
    request_body(content = FailSteps, example = json!({
        "node": "node_0190f5fe7c2b7cc09b4f1d1d1d",
        "steps": [{"run": "run_0190f5fe7c2b7cc09b4f1d1d1d", "fence": 2, "message": "the provider is busy", "code": "BUSY"}]
    })),
    params(SpokenProtocol),
    responses((status = 200, body = StepAnswers, description = "One result per report"), WorkerProblems)
)]
pub(super) async fn fail(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(FailSteps { node, steps }): CallBody<FailSteps>,
) -> Result<Told<StepAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let said = steps.into_iter().map(|step| (step.run, step.fence, failed(step))).collect();
    report(app, workers, caller.workspace, WriteBy::of(&caller, node), said).await
}

/// The report of a failed attempt.
fn failed(step: FailedStep) -> Result<Report> {
    let FailedStep { kind, message, code, data, retry_after_ms, .. } = step;
    if message.len() > LONGEST_MESSAGE || code.as_ref().is_some_and(|code| code.len() > LONGEST_CODE) {
        let most = format!("`message` has at most {LONGEST_MESSAGE} bytes, `code` at most {LONGEST_CODE}");
        return Err(semel::Error::Validation(most));
    }
    let data = data.map(|data| Payload::parse(data.get())).transpose()?;
    let retry_after = retry_after_ms.map(Duration::from_millis);
    Ok(Report::Failed { error: Failure { kind, message, code, data }, retry_after })
}

/// One report: run, fence and outcome.
type Said = (RunId, u64, Result<Report>);

async fn report(
    app: Arc<App>,
    workers: Arc<Workers>,
    workspace: WorkspaceId,
    by: WriteBy,
    said: Vec<Said>,
) -> Result<Told<StepAnswers>, Refusal> {
    if said.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} steps in one call", wire::MOST)).into());
    }
    let queues = Queues::new(app.store.clone(), app.clock.clone());
    // In a task of its own: the reports are recorded even if the client disconnects.
    let origin = Origin::current().unwrap_or_default();
    let done = tokio::spawn(origin.around(async move {
        let each = said.into_iter().map(|(run, fence, report)| {
            let (app, workers, queues, by) = (&*app, &*workers, &queues, &by);
            async move {
                let noted = match report {
                    Ok(report) => {
                        let step = AssignmentRef { workspace, run, fence };
                        report_one(app, workers, queues, by, step, report).await
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
    }));
    let results = done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    Ok(Told(StepAnswers { results }))
}

async fn report_one(
    app: &App,
    workers: &Workers,
    queues: &Queues,
    by: &WriteBy,
    step: AssignmentRef,
    report: Report,
) -> Result<()> {
    let handed_out = queues.handed_out(step).await?;
    let place = (step.workspace, handed_out.node());
    if by.speaks_for(app, &workers.roster, step.workspace, handed_out.node()).await? {
        let due = queues.report_on(&handed_out, &report).await;
        workers.roster.reported(place, step.run);
        // A step that is tried again rests until then.
        due?.into_iter().for_each(|due| workers.waiting.rests_until(due));
        return Ok(());
    }
    // A repeated report changes nothing and gets the same answer.
    if handed_out.is_reported(&report) { Ok(()) } else { Err(handed_out.lost()) }
}
