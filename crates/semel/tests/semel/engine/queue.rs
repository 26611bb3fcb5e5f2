//! Steps that are handed to a queue: taken, reported, taken over, refused when late.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use semel::clock::Clock;
use semel::engine::queue::{AssignmentRef, Queues, Take};
use semel::error::Error;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::{Entry, Failure, FailureKind, Outcome};
use semel::rules::json::Payload;
use semel::rules::path::Name;
use semel::rules::queue::Assignment;
use semel::rules::receipt::ReceiptKind;
use semel::rules::start::Start;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, Lease, LeaseAct, Store, Sweep};
use semel::testing::{Crasher, Effects, Ended, Scene, history};
use semel::{Ctx, Engine, Result, Retry, RunHandle};

use super::{Lab, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let crash = Trial::test("engine::crash::a_step_that_is_done_elsewhere", || {
        crashes();
        Ok(())
    });
    vec![
        trial("a_remote_step_is_executed_by_the_worker_that_claims_it", done_elsewhere),
        trial("a_step_that_fails_elsewhere_is_tried_again_under_its_key", tried_again),
        trial("a_step_that_fails_for_good_elsewhere_fails_the_run_and_is_tried_anew_with_it", fails_for_good),
        trial("a_step_of_a_dead_worker_goes_to_another_and_the_late_report_is_refused", taken_over),
        trial("a_report_that_is_made_again_is_answered_as_the_first_time", reported_again),
        trial("a_step_that_kills_its_workers_is_parked_and_others_go_on", poisoned),
        trial("a_try_that_takes_too_long_is_given_up_and_tried_again", too_slow),
        trial("a_report_after_the_limit_is_refused", after_the_limit),
        trial("a_task_reported_after_the_limit_of_its_run_does_not_complete", after_the_limit_of_the_run),
        trial("steps_of_a_cancelled_run_are_not_handed_out", cancelled_before),
        trial("a_step_in_a_workers_hands_ends_as_the_worker_says_or_with_its_run", cancelled_meanwhile),
        trial("a_doubt_elsewhere_is_settled_by_a_person", doubt),
        trial("an_answer_has_no_more_input_than_fits", large),
        trial("what_is_no_step_of_a_queue_is_not_reported_to", strangers),
        crash,
    ]
}

const LEASE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(10);

async fn order(ctx: Ctx, cents: u64) -> Result<String> {
    let step = ctx.remote("charge", "payments", cents).retry(Retry::fixed(PAUSE)).timeout(PAUSE);
    let receipt: String = step.key("card").await?;
    Ok(format!("charged {cents}, {receipt}"))
}

async fn lab() -> Result<(Lab, Engine)> {
    let lab = Lab::new();
    let engine = lab.engine().workflow("order", order).open().await?;
    Ok((lab, engine))
}

/// A process elsewhere that does steps.
struct QueueWorker {
    store: Arc<dyn Store>,
    queues: Queues,
    node: NodeId,
}

impl QueueWorker {
    async fn new(store: &Arc<dyn Store>, queues: Queues, node: NodeId) -> Result<Self> {
        let worker = Self { store: store.clone(), queues, node };
        worker.live().await?;
        Ok(worker)
    }

    async fn at(lab: &Lab) -> Result<Self> {
        let queues = Queues::new(lab.store.clone(), lab.clock.clone());
        Self::new(&lab.store, queues, NodeId(lab.clock.uuid())).await
    }

    async fn live(&self) -> Result<()> {
        self.store.lease(Lease { node: self.node, act: LeaseAct::Join(LEASE) }).await?;
        Ok(())
    }

    /// Its lease ends, and the sweep finds it.
    async fn die(&self) -> Result<()> {
        self.store.lease(Lease { node: self.node, act: LeaseAct::Join(Duration::ZERO) }).await?;
        self.store.sweep(Sweep { limit: 100 }).await?;
        Ok(())
    }

    async fn take(&self) -> Result<Vec<Assignment>> {
        let queues = vec![Name::new("payments")?, Name::new("letters")?];
        let take = Take { workspace: WorkspaceId::DEFAULT, node: self.node, queues, limit: 10 };
        Ok(self.queues.take(take).await?.tasks)
    }

    /// The next task, as soon as there is one.
    async fn task(&self) -> Result<Assignment> {
        loop {
            if let Some(task) = self.take().await?.pop() {
                return Ok(task);
            }
            tokio::task::yield_now().await;
        }
    }

    async fn complete(&self, task: &Assignment, value: &str) -> Result<(), Error> {
        self.queues.complete(of(task), Payload::of(value)?).await
    }

    async fn fail(&self, task: &Assignment, kind: FailureKind) -> Result<(), Error> {
        self.queues.fail(of(task), Failure::new(kind, "no answer")).await
    }
}

fn of(task: &Assignment) -> AssignmentRef {
    AssignmentRef { workspace: WorkspaceId::DEFAULT, run: task.run, fence: task.fence }
}

fn lost(answer: &Result<(), Error>) -> bool {
    matches!(answer, Err(Error::Concurrency { .. }))
}

async fn status(lab: &Lab, run: RunId) -> Status {
    let find = Find { workspace: WorkspaceId::DEFAULT, by: FindBy::Id(run) };
    lab.store.find(find).await.expect("it works").expect("it exists").0.status()
}

/// The run of a remote step, as soon as it exists.
async fn child_of(run: &RunHandle<String>) -> Result<RunId> {
    loop {
        let started = |entry: &Entry| match entry {
            Entry::ChildStarted { run, .. } => Some(*run),
            _ => None,
        };
        if let Some(child) = run.ledger().await?.iter().find_map(|line| started(&line.entry)) {
            return Ok(child);
        }
        tokio::task::yield_now().await;
    }
}

async fn done_elsewhere() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let task = worker.task().await?;
    let step = (task.queue.as_str(), task.step.to_string(), task.input.text());
    assert_eq!(step, ("payments", "charge[card]".to_owned(), "7"));
    assert_eq!((task.attempt, task.timeout_ms, task.key.as_str().len()), (1, Some(10_000), 34));
    assert_eq!(worker.take().await?, [], "it is in one worker's hands");
    worker.complete(&task, "by card").await?;
    assert_eq!(run.result().await?, "charged 7, by card");
    let ledger = run.ledger().await?;
    let kinds: Vec<_> = ledger.iter().map(|line| line.entry.kind()).collect();
    assert!(kinds.contains(&"childStarted") && kinds.contains(&"childFinished"), "{kinds:?}");
    let child = engine.run(task.run).ledger().await?;
    let kinds: Vec<_> = child.iter().map(|line| line.entry.kind()).collect();
    assert_eq!(kinds, ["created", "claimed", "stepStarted", "stepCompleted", "completed"]);
    Ok(())
}

async fn tried_again() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let mut tasks = vec![worker.task().await?];
    for kind in [FailureKind::Retryable, FailureKind::Timeout] {
        worker.fail(tasks.last().ok_or("a task")?, kind).await?;
        assert_eq!(worker.take().await?, [], "not before its pause is over");
        lab.clock.advance(PAUSE);
        worker.live().await?;
        tasks.push(worker.task().await?);
    }
    worker.complete(tasks.last().ok_or("a task")?, "at last").await?;
    assert_eq!(run.result().await?, "charged 7, at last");
    let attempts: Vec<_> = tasks.iter().map(|task| task.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(tasks.iter().all(|task| task.key == tasks[0].key && task.run == tasks[0].run));
    assert!(tasks.is_sorted_by_key(|task| task.fence));
    Ok(())
}

async fn fails_for_good() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let first = worker.task().await?;
    worker.fail(&first, FailureKind::Fatal).await?;
    let Outcome::Failed(failure) = run.outcome().await? else { return Err("it has failed".into()) };
    assert!(failure.message.contains("no answer"), "{failure}");
    run.retry().await?;
    let second = worker.task().await?;
    assert_eq!((second.attempt, &second.key), (1, &first.key), "another life, the same effect");
    worker.complete(&second, "now").await?;
    assert_eq!(engine.run(run.id()).typed::<String>().result().await?, "charged 7, now");
    Ok(())
}

async fn taken_over() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let run = engine.start(order, 7).await?;
    let slow = QueueWorker::at(&lab).await?;
    let lost_one = slow.task().await?;
    lab.clock.advance(LEASE);
    lab.store.sweep(Sweep { limit: 10 }).await?;
    let quick = QueueWorker::at(&lab).await?;
    let task = quick.task().await?;
    assert_eq!((task.run, &task.key, task.attempt), (lost_one.run, &lost_one.key, 1));
    assert!(task.fence > lost_one.fence);
    assert!(lost(&slow.complete(&lost_one, "late").await));
    assert!(lost(&slow.fail(&lost_one, FailureKind::Retryable).await));
    quick.complete(&task, "in time").await?;
    assert!(lost(&slow.complete(&lost_one, "late").await));
    assert_eq!(run.result().await?, "charged 7, in time");
    let receipts = lab.store.receipts(WorkspaceId::DEFAULT, task.run).await?;
    let refused = receipts.iter().find(|(kind, _)| *kind == ReceiptKind::Result);
    assert_eq!(refused.map(|(_, receipts)| receipts.count), Some(3), "counted");
    Ok(())
}

/// Its worker lives, and reports nothing in time.
async fn too_slow() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let run = engine.start(order, 7).await?;
    let worker = QueueWorker::at(&lab).await?;
    let first = worker.task().await?;
    assert_eq!(first.timeout_ms, Some(10_000));
    lab.clock.advance(PAUSE.saturating_sub(Duration::from_millis(1)));
    assert_eq!(lab.store.sweep(Sweep { limit: 10 }).await?.timed_out, 0);
    lab.clock.advance(Duration::from_millis(1));
    lab.store.sweep(Sweep { limit: 10 }).await?;
    let ledger = history(&engine.run(first.run)).await?;
    assert_eq!((ledger.count("stepFailed"), ledger.count("waiting")), (1, 1), "{ledger}");
    assert!(lost(&worker.complete(&first, "late").await));
    lab.clock.advance(PAUSE);
    worker.live().await?;
    let second = worker.task().await?;
    assert_eq!((second.attempt, &second.key), (2, &first.key));
    // In time, counted from its own claim.
    lab.clock.advance(PAUSE.saturating_sub(Duration::from_millis(1)));
    assert_eq!(lab.store.sweep(Sweep { limit: 10 }).await?.timed_out, 0);
    worker.complete(&second, "in time").await?;
    assert_eq!(run.result().await?, "charged 7, in time");
    Ok(())
}

/// Before any sweep.
async fn after_the_limit() -> Result<(), Failed> {
    let lab = Lab::new();
    let (worker, run) = (QueueWorker::at(&lab).await?, alone(&lab, None).await?);
    let first = worker.task().await?;
    lab.clock.advance(PAUSE);
    assert!(lost(&worker.complete(&first, "late").await));
    assert_eq!(status(&lab, run).await, Status::Waiting, "it is tried again");
    lab.clock.advance(Duration::from_mins(1));
    worker.live().await?;
    let second = worker.task().await?;
    assert_eq!(second.attempt, 2);
    worker.complete(&second, "in time").await?;
    assert_eq!(status(&lab, run).await, Status::Completed);
    Ok(())
}

async fn after_the_limit_of_the_run() -> Result<(), Failed> {
    let lab = Lab::new();
    let (worker, run) = (QueueWorker::at(&lab).await?, alone(&lab, Some(PAUSE / 2)).await?);
    let task = worker.task().await?;
    lab.clock.advance(PAUSE / 2);
    assert!(lost(&worker.complete(&task, "late").await));
    assert_eq!(status(&lab, run).await, Status::TimedOut);
    assert!(lost(&worker.complete(&task, "late").await), "and stays so");
    Ok(())
}

/// A task without a parent, whose tries may take ten seconds each.
async fn alone(lab: &Lab, timeout: Option<Duration>) -> Result<RunId, Failed> {
    let workflow = Name::new("queue:payments")?;
    let input = Payload::parse(r#"{"step":"charge","input":7,"timeoutMs":10000}"#)?;
    let run = RunId(lab.clock.uuid());
    let start = Start { timeout, ..Start::new(WorkspaceId::DEFAULT, run, workflow, input, None) };
    lab.store.start(start).await?;
    Ok(run)
}

async fn reported_again() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let first = worker.task().await?;
    for _ in 0..2 {
        worker.fail(&first, FailureKind::Retryable).await?;
    }
    assert!(lost(&worker.complete(&first, "after all").await), "it has said something else");
    lab.clock.advance(PAUSE);
    worker.live().await?;
    let second = worker.task().await?;
    worker.fail(&first, FailureKind::Retryable).await?;
    for _ in 0..3 {
        worker.complete(&second, "done").await?;
    }
    assert!(lost(&worker.complete(&second, "twice").await));
    assert_eq!(run.result().await?, "charged 7, done");
    assert_eq!(history(&engine.run(second.run)).await?.count("completed"), 1);
    Ok(())
}

async fn poisoned() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    engine.start(order, 1).key("bad").await?;
    let mut killed = Vec::new();
    for _ in 0..5 {
        let worker = QueueWorker::at(&lab).await?;
        killed.push(worker.task().await?);
        worker.die().await?;
    }
    let good = engine.start(order, 2).key("good").await?;
    let worker = QueueWorker::at(&lab).await?;
    let task = worker.task().await?;
    assert_eq!(task.input.text(), "2");
    worker.complete(&task, "fine").await?;
    assert_eq!(good.result().await?, "charged 2, fine");
    assert_eq!(worker.take().await?, []);
    assert_eq!(status(&lab, killed[0].run).await, Status::Paused);
    engine.run(killed[0].run).resume().await?;
    let again = worker.task().await?;
    assert_eq!(again.key, killed[0].key, "an operator may let it go on");
    Ok(())
}

async fn cancelled_before() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let run = engine.start(order, 7).await?;
    let child = child_of(&run).await?;
    run.cancel("no longer wanted").await?;
    let worker = QueueWorker::at(&lab).await?;
    assert_eq!(worker.take().await?, []);
    assert_eq!(status(&lab, child).await, Status::Cancelled);
    Ok(())
}

async fn cancelled_meanwhile() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    for (says, ends) in [("done", Status::Completed), ("failed", Status::Cancelled)] {
        let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
        let task = worker.task().await?;
        run.cancel("no longer wanted").await?;
        match says {
            "done" => worker.complete(&task, "it has taken place").await?,
            _ => worker.fail(&task, FailureKind::Retryable).await?,
        }
        assert_eq!(status(&lab, task.run).await, ends, "{says}");
        assert_eq!(run.status().await?, Status::Cancelled);
    }
    Ok(())
}

async fn doubt() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let task = worker.task().await?;
    worker.fail(&task, FailureKind::Uncertain).await?;
    assert_eq!(status(&lab, task.run).await, Status::Paused);
    engine.run(task.run).happened("charge[card]", &"it was").await?;
    lab.until(async || {
        worker.take().await.is_ok_and(|tasks| tasks.is_empty())
            && status(&lab, task.run).await == Status::Completed
    })
    .await;
    assert_eq!(run.result().await?, "charged 7, it was");
    Ok(())
}

async fn letters(ctx: Ctx, size: usize) -> Result<()> {
    ctx.remote("print", "letters", "x".repeat(size)).await
}

async fn large() -> Result<(), Failed> {
    const SIZE: usize = 2_000_000;
    let lab = Lab::new();
    let engine = lab.engine().workflow("letters", letters).open().await?;
    let mut runs = Vec::new();
    for _ in 0..10 {
        runs.push(engine.start(letters, SIZE).await?.typed::<String>());
    }
    let mut tasks = Vec::new();
    for run in &runs {
        tasks.push(child_of(run).await?);
    }
    let worker = QueueWorker::at(&lab).await?;
    let first = worker.take().await?;
    assert_eq!(first.len(), 8, "16 MiB");
    let mut pending = 0;
    for task in tasks {
        pending += usize::from(status(&lab, task).await == Status::Pending);
    }
    assert_eq!(pending, 2, "the others were not claimed");
    let second = worker.take().await?;
    assert_eq!(second.len(), 2);
    for task in first.iter().chain(&second) {
        worker.queues.complete(of(task), Payload::null()).await?;
    }
    for run in runs {
        run.typed::<()>().result().await?;
    }
    Ok(())
}

async fn strangers() -> Result<(), Failed> {
    let (lab, engine) = lab().await?;
    let (run, worker) = (engine.start(order, 7).await?, QueueWorker::at(&lab).await?);
    let task = worker.task().await?;
    let parent = AssignmentRef { run: run.id(), ..of(&task) };
    let foreign = AssignmentRef { workspace: WorkspaceId(lab.clock.uuid()), ..of(&task) };
    let unknown = AssignmentRef { run: RunId(lab.clock.uuid()), ..of(&task) };
    for other in [parent, foreign, unknown] {
        let answer = worker.queues.complete(other, Payload::null()).await;
        assert!(matches!(answer, Err(Error::RunNotFound(id)) if id == other.run), "{answer:?}");
    }
    for fence in [0, 1, task.fence + 1, u64::MAX] {
        let answer = worker.queues.complete(AssignmentRef { fence, ..of(&task) }, Payload::null()).await;
        assert!(lost(&answer), "{fence}: {answer:?}");
    }
    worker.complete(&task, "still").await?;
    assert_eq!(run.result().await?, "charged 7, still");
    Ok(())
}

/// The engine of the parent dies at every boundary; the worker lives on.
fn crashes() {
    let crasher = Crasher::new(
        || {
            let effects = Effects::new();
            effects.fail("charge", 1);
            effects
        },
        |_, engine| engine.workflow("order", order),
        async |scene: Scene<Effects>| {
            let run = scene.engine().start(order, 7).key("k").await?;
            let broken = |error: semel::Fail| Error::Validation(error.to_string());
            let node = NodeId(scene.clock().uuid());
            let worker = QueueWorker::new(scene.store(), scene.queues(), node).await.map_err(broken)?;
            let work = async || -> Result<bool> {
                worker.live().await?;
                for task in worker.take().await? {
                    match scene.world().apply("charge", task.key.as_str()) {
                        Ok(_) => worker.complete(&task, "once").await?,
                        Err(_) => worker.fail(&task, FailureKind::Retryable).await?,
                    }
                }
                Ok(scene.status(run.id()).await?.is_terminal())
            };
            scene.until(async || work().await.expect("the store of the worker lives")).await;
            run.result().await
        },
    );
    let check = |ended: &Ended<Effects, String>| {
        assert_eq!(ended.value, "charged 7, once");
        let (calls, keys) = (ended.world.calls("charge"), ended.world.keys("charge").len());
        assert_eq!((calls, keys, ended.world.applied("charge")), (2, 1, 1), "{:?}", ended.crashes);
        assert_eq!(ended.history().count("childStarted"), 1);
        assert_eq!(ended.history().count("childFinished"), 1);
    };
    crasher.every_boundary(check);
    crasher.every_fault(check);
    crasher.every_two_boundaries(check);
}
