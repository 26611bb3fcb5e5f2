//! Queues: steps that are handed to whoever comes for them.
//!
//! Such a step is a child run of the workflow `queue:<name>`, so leases, takeovers, poison, cancel and the parent's inbox are
//! those of runs. A worker that takes it is given a [`Task`] and reports what came of it; here is what either makes of
//! the child's ledger. An attempt is noted with its end, as that of every keyed step: a worker that dies has left nothing,
//! and the next one is given the same attempt under the same key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::claim::Drives;
use super::entry::{Class, Created, Entry, Failure, FailureKind, Message, PauseReason};
use super::json::Payload;
use super::key::{Key, Scope};
use super::ledger::{Ledger, Record, Refused};
use super::path::{InvalidPath, Name, Visit};
use super::retry::{Next, Retry};
use super::start::default_version;
use super::status::Status;
use super::step::Step;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};

/// What the names of queues' workflows begin with.
const PREFIX: &str = "queue:";

/// The workflow whose runs are the tasks of a queue.
pub fn workflow(queue: &Name) -> Result<Name, InvalidPath> {
    Name::new(&format!("{PREFIX}{queue}"))
}

/// The version of these workflows. There is one: a queue has no code that could change under its runs.
pub fn version() -> Name {
    default_version()
}

/// What whoever takes the tasks of a queue drives.
pub fn drives(workspace: WorkspaceId, queue: &Name) -> Result<Drives, InvalidPath> {
    Ok(Drives { workspace, workflow: workflow(queue)?, workflow_version: version() })
}

/// The queue whose tasks are the runs of a workflow; none if it is no such workflow.
pub fn queue(workflow: &Name) -> Option<Name> {
    Name::new(workflow.as_str().strip_prefix(PREFIX)?).ok()
}

/// What a step is, as the input of the run that stands for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteStep {
    /// Where in the run that hands it over.
    pub step: Visit,
    /// What it works on.
    pub input: Payload,
    /// How it is tried again.
    #[serde(default)]
    pub retry: Retry,
    /// How long one try may take, in milliseconds, from the claim to the report. A try without a report by then has failed
    /// with `timeout`, and its worker has lost it. None: for as long as its worker lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A step in the hands of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The run that stands for it.
    pub run: RunId,
    /// The queue it was taken from.
    pub queue: Name,
    /// Which step it is.
    pub step: Visit,
    /// What it works on.
    pub input: Payload,
    /// The effect key: the same on every try, over crashes, restarts and takeovers.
    pub key: Key,
    /// Which try this is: 1, 2, 3 …
    pub attempt: u32,
    /// The version of the claim: who reports says it, and is refused if somebody else has the task by then.
    pub fence: u64,
    /// How long this try may take, in milliseconds from its claim: a later report is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// This result.
    Completed(Payload),
    /// It failed.
    Failed {
        /// Why.
        error: Failure,
        /// When it may be tried again, if the worker knows better than the step's own pauses.
        retry_after: Option<Duration>,
    },
}

/// The time and the chance of a decision. Chance is from 0 up to 1.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time.
    pub now: Time,
    /// The chance.
    pub random: f64,
}

/// What a claimed run of a queue is handed out as. If there is nothing to hand out, because it was asked to end, has its
/// outcome already, or makes no sense, that is recorded instead.
pub fn hand(ledger: &mut Ledger, inbox: &[(u64, Message)], now: Time) -> Result<Option<Task>, Refused> {
    if let Some(limit) = ledger.deadline().filter(|limit| *limit <= now) {
        return ledger.record(Entry::TimedOut { limit }).map(|()| None);
    }
    if cancel(ledger, inbox)? {
        return Ok(None);
    }
    let entry = match read(ledger) {
        Err(error) => Entry::Failed { error },
        Ok((queue, remote)) => match ledger.record_at(&remote.step) {
            // Somebody has settled a doubt.
            Some(Record::Step(Step::Completed(value))) => Entry::Completed { value: value.clone() },
            Some(Record::Step(Step::Failed(error) | Step::GivenUp { error, .. })) => {
                Entry::Failed { error: error.clone() }
            }
            Some(Record::Step(Step::InDoubt { .. })) => Entry::Paused { reason: PauseReason::InDoubt },
            found => match next_attempt(found) {
                Some(attempt) => return Ok(Some(task(ledger, queue, remote, attempt))),
                None => Entry::Failed { error: fatal(format!("{} is no step to be done", remote.step)) },
            },
        },
    };
    ledger.record(entry).map(|()| None)
}

fn task(ledger: &Ledger, queue: Name, remote: RemoteStep, attempt: u32) -> Task {
    let created = ledger.created();
    // A child's key is the effect key of the parent's visit. One that was started by itself has its own.
    let key = if created.scope == Scope::children() {
        created.key.clone()
    } else {
        Key::new(ledger.effect_key(&remote.step, "").to_string()).expect("34 plain characters")
    };
    let RemoteStep { step, input, timeout_ms, .. } = remote;
    Task { run: ledger.run().id(), queue, step, input, key, attempt, fence: ledger.fence(), timeout_ms }
}

/// Records what came of a task that was handed out, and what follows from it for the run.
pub fn report(
    ledger: &mut Ledger,
    report: &Report,
    inbox: &[(u64, Message)],
    moment: Moment,
) -> Result<(), Refused> {
    let (_, RemoteStep { step, retry, .. }) = match read(ledger) {
        Ok(remote) => remote,
        // It cannot have been handed out like this.
        Err(error) => return ledger.record(Entry::Failed { error }),
    };
    let attempt = next_attempt(ledger.record_at(&step)).unwrap_or(1);
    ledger.record(Entry::StepStarted { step: step.clone(), attempt, class: Class::Keyed })?;
    let (error, retry_after) = match report {
        Report::Completed(value) => {
            // The effect has taken place, whatever was wished meanwhile.
            ledger.record(Entry::StepCompleted { step, value: value.clone() })?;
            return ledger.record(Entry::Completed { value: value.clone() });
        }
        Report::Failed { error, retry_after } => (error.clone(), *retry_after),
    };
    match retry.next(attempt, &error, moment.random) {
        Next::Doubt => {
            ledger.record(Entry::StepInDoubt { step, reason: error.message })?;
            ledger.record(Entry::Paused { reason: PauseReason::InDoubt })
        }
        Next::After(_) if wish(inbox).is_some() => {
            ledger.record(Entry::StepFailed { step, attempt, error, retry_at: None })?;
            cancel(ledger, inbox).map(drop)
        }
        Next::After(pause) => {
            let retry_at = Some(moment.now.after(retry_after.unwrap_or(pause)));
            ledger.record(Entry::StepFailed { step, attempt, error, retry_at })?;
            ledger.record(Entry::Waiting { due: retry_at })
        }
        Next::Fail => {
            ledger.record(Entry::StepFailed { step, attempt, error: error.clone(), retry_at: None })?;
            ledger.record(Entry::Failed { error })
        }
    }
}

/// What of a task is over its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The run that stands for it: it ends at this limit, whatever comes of the task.
    Run(Time),
    /// The try that began with the latest claim: it has failed, whatever is reported of it.
    Try,
}

/// Whether the time of a task that was claimed at this time is up.
pub fn overdue(ledger: &Ledger, claimed: Time, now: Time) -> Option<Overdue> {
    if let Some(limit) = ledger.deadline().filter(|limit| *limit <= now) {
        return Some(Overdue::Run(limit));
    }
    let limit = try_ends(ledger, claimed)?;
    (limit <= now).then_some(Overdue::Try)
}

/// When the store has to look again at a task that was claimed at this time.
pub fn next_deadline(ledger: &Ledger, claimed: Time) -> Option<Time> {
    ledger.deadline().into_iter().chain(try_ends(ledger, claimed)).min()
}

fn try_ends(ledger: &Ledger, claimed: Time) -> Option<Time> {
    let running = ledger.run().status() == Status::Running;
    Some(claimed.after(try_limit(ledger.created()).filter(|_| running)?))
}

/// How long one try of a remote step may take.
pub fn try_limit(created: &Created) -> Option<Duration> {
    // Without a look at the rest of the input, which may be long.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Limited {
        timeout_ms: Option<u64>,
    }
    queue(&created.workflow)?;
    let limited: Limited = created.input.read().ok()?;
    limited.timeout_ms.map(Duration::from_millis)
}

/// What a try that took too long is taken for.
pub fn took_too_long(ledger: &Ledger) -> Report {
    let limit = try_limit(ledger.created()).unwrap_or_default();
    let message = format!("no report came within {} ms", limit.as_millis());
    Report::Failed { error: Failure { kind: FailureKind::Timeout, message }, retry_after: None }
}

/// Whether this very report is what stands after a claim: its answer was lost, and it is made again.
pub fn is_reported(after: &[Entry], report: &Report) -> bool {
    match (after.get(1), report) {
        (Some(Entry::StepCompleted { value, .. }), Report::Completed(said)) => value.is_same(said),
        (Some(Entry::StepFailed { error, .. }), Report::Failed { error: said, .. }) => error == said,
        (Some(Entry::StepInDoubt { reason, .. }), Report::Failed { error, .. }) => {
            error.kind == FailureKind::Uncertain && *reason == error.message
        }
        _ => false,
    }
}

fn read(ledger: &Ledger) -> Result<(Name, RemoteStep), Failure> {
    let created = ledger.created();
    let queue = queue(&created.workflow).ok_or_else(|| fatal(format!("{} is no queue", created.workflow)))?;
    match created.input.read() {
        Ok(remote) => Ok((queue, remote)),
        Err(wrong) => Err(fatal(format!("the input is not a step for a queue: {wrong}"))),
    }
}

fn fatal(message: String) -> Failure {
    Failure { kind: FailureKind::Fatal, message }
}

fn next_attempt(found: Option<&Record>) -> Option<u32> {
    match found {
        None => Step::next_attempt(None),
        Some(Record::Step(step)) => Step::next_attempt(Some(step)),
        Some(_) => None,
    }
}

fn wish(inbox: &[(u64, Message)]) -> Option<(u64, String, String)> {
    inbox.iter().find_map(|(arrival, message)| {
        let (reason, by) = message.wishes_end()?;
        Some((*arrival, reason, by))
    })
}

/// Ends the run if it was asked to.
fn cancel(ledger: &mut Ledger, inbox: &[(u64, Message)]) -> Result<bool, Refused> {
    let Some((arrival, reason, by)) = wish(inbox) else { return Ok(false) };
    ledger.record(Entry::Cancelling { arrival, reason: reason.clone(), by: by.clone() })?;
    ledger.record(Entry::Cancelled { reason, by })?;
    Ok(true)
}

#[cfg(test)]
mod tests;
