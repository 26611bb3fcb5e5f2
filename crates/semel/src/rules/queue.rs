//! Queues: steps that are handed to remote workers.
//!
//! A remote step is a child run of the workflow `queue:<name>`, so leases, takeovers, poison, cancel and the parent's inbox are
//! those of runs. A worker that claims it gets an [`Assignment`] and reports the result. This module decides what each adds to
//! the child's ledger. An attempt is recorded when it ends, as that of every keyed step: a worker that dies leaves nothing,
//! and the next one gets the same attempt under the same key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::claim::Drives;
use super::entry::{Class, Created, Entry, Failure, FailureKind, Message, PauseReason};
use super::json::Payload;
use super::key::{Key, Scope};
use super::ledger::{Ledger, RefusedEntry, VisitRecord};
use super::path::{InvalidPath, Name, Visit};
use super::retry::{Retry, RetryDecision};
use super::start::default_version;
use super::status::Status;
use super::step::StepState;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};

/// Prefix of the names of queues' workflows.
const PREFIX: &str = "queue:";

/// The workflow whose runs are the remote steps of a queue.
pub fn workflow(queue: &Name) -> Result<Name, InvalidPath> {
    Name::new(&format!("{PREFIX}{queue}"))
}

/// The version of these workflows. There is only one, because a queue has no code that could change under its runs.
pub fn version() -> Name {
    default_version()
}

/// The workflow version that a worker of this queue claims.
pub fn drives(workspace: WorkspaceId, queue: &Name) -> Result<Drives, InvalidPath> {
    Ok(Drives { workspace, workflow: workflow(queue)?, workflow_version: version() })
}

/// The queue of a workflow; none if the workflow is not that of a queue.
pub fn queue(workflow: &Name) -> Option<Name> {
    Name::new(workflow.as_str().strip_prefix(PREFIX)?).ok()
}

/// A step as the input of the run that represents it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteStep {
    /// Visit in the run that hands the step over.
    pub step: Visit,
    /// JSON input that the step was given.
    pub input: Payload,
    /// Retry policy of the step.
    #[serde(default)]
    pub retry: Retry,
    /// Maximum duration of one attempt, in milliseconds from the claim to the report. An attempt without a report by
    /// then has failed with `timeout`, and its worker has lost it. None: as long as its worker lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A remote step that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// Run of the remote step.
    pub run: RunId,
    /// The queue from which it was claimed.
    pub queue: Name,
    /// Visit of the step in the run that handed it over.
    pub step: Visit,
    /// JSON input that the step was given.
    pub input: Payload,
    /// Effect key: the same on every attempt, across crashes, restarts and takeovers.
    pub key: Key,
    /// Number of the attempt: 1, 2, 3 …
    pub attempt: u32,
    /// Version of the claim. A report must name it, and is refused if another worker has claimed the step since.
    pub fence: u64,
    /// Maximum duration of this attempt, in milliseconds from its claim; a later report is refused. None: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// A worker's report on an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The step completed with this result.
    Completed(Payload),
    /// The attempt failed with this error.
    Failed {
        /// Error of the attempt.
        error: Failure,
        /// Delay before the next attempt; absent: as the retry policy says.
        retry_after: Option<Duration>,
    },
}

/// Time and randomness for a decision.
#[derive(Clone, Copy, Debug)]
pub struct TimeAndChance {
    /// Time at which the decision is made.
    pub now: Time,
    /// A random number, at least 0 and below 1.
    pub random: f64,
}

/// The assignment for a worker that has claimed a run of a queue. If the run was asked to end, has its outcome already
/// or makes no sense, that is recorded instead, and there is none.
pub fn hand(
    ledger: &mut Ledger,
    inbox: &[(u64, Message)],
    now: Time,
) -> Result<Option<Assignment>, RefusedEntry> {
    if let Some(limit) = ledger.deadline().filter(|limit| *limit <= now) {
        return ledger.record(Entry::TimedOut { limit }).map(|()| None);
    }
    if cancel(ledger, inbox)? {
        return Ok(None);
    }
    let entry = match read(ledger) {
        Err(error) => Entry::Failed { error },
        Ok((queue, remote)) => match ledger.record_at(&remote.step) {
            // An operator has resolved a doubt.
            Some(VisitRecord::Step(StepState::Completed(value))) => Entry::Completed { value: value.clone() },
            Some(VisitRecord::Step(StepState::Failed(error) | StepState::GivenUp { error, .. })) => {
                Entry::Failed { error: error.clone() }
            }
            Some(VisitRecord::Step(StepState::InDoubt { .. })) => {
                Entry::Paused { reason: PauseReason::InDoubt }
            }
            found => match next_attempt(found) {
                Some(attempt) => return Ok(Some(task(ledger, queue, remote, attempt))),
                None => Entry::Failed { error: fatal(format!("{} is no step to be done", remote.step)) },
            },
        },
    };
    ledger.record(entry).map(|()| None)
}

fn task(ledger: &Ledger, queue: Name, remote: RemoteStep, attempt: u32) -> Assignment {
    let created = ledger.created();
    // A child's key is the effect key of the parent's visit. A run that was started on its own has a key of its own.
    let key = if created.scope == Scope::children() {
        created.key.clone()
    } else {
        Key::new(ledger.effect_key(&remote.step, "").to_string()).expect("34 plain characters")
    };
    let RemoteStep { step, input, timeout_ms, .. } = remote;
    Assignment { run: ledger.run().id(), queue, step, input, key, attempt, fence: ledger.fence(), timeout_ms }
}

/// Records the report on an assignment, and what follows from it for the run.
pub fn report(
    ledger: &mut Ledger,
    report: &Report,
    inbox: &[(u64, Message)],
    moment: TimeAndChance,
) -> Result<(), RefusedEntry> {
    let (_, RemoteStep { step, retry, .. }) = match read(ledger) {
        Ok(remote) => remote,
        // The run cannot have been handed out with this input.
        Err(error) => return ledger.record(Entry::Failed { error }),
    };
    let attempt = next_attempt(ledger.record_at(&step)).unwrap_or(1);
    ledger.record(Entry::step_started(step.clone(), attempt, Class::Keyed))?;
    let (error, retry_after) = match report {
        Report::Completed(value) => {
            // The effect has taken place, whatever was asked for meanwhile.
            ledger.record(Entry::StepCompleted { step, value: value.clone() })?;
            return ledger.record(Entry::Completed { value: value.clone() });
        }
        Report::Failed { error, retry_after } => (error.clone(), *retry_after),
    };
    match retry.next(attempt, &error, moment.random) {
        RetryDecision::Doubt => {
            ledger.record(Entry::StepInDoubt { step, reason: error.message })?;
            ledger.record(Entry::Paused { reason: PauseReason::InDoubt })
        }
        RetryDecision::After(_) if wish(inbox).is_some() => {
            ledger.record(Entry::StepFailed { step, attempt, error, retry_at: None })?;
            cancel(ledger, inbox).map(drop)
        }
        RetryDecision::After(pause) => {
            let retry_at = Some(moment.now.after(retry_after.unwrap_or(pause)));
            ledger.record(Entry::StepFailed { step, attempt, error, retry_at })?;
            ledger.record(Entry::Waiting { due: retry_at })
        }
        RetryDecision::Fail => {
            ledger.record(Entry::StepFailed { step, attempt, error: error.clone(), retry_at: None })?;
            ledger.record(Entry::Failed { error })
        }
    }
}

/// A time limit of a remote step that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The limit of the run of the step. The run ends at this time, whatever a worker reports later.
    Run(Time),
    /// The limit of the attempt that began with the latest claim. The attempt has failed, and a later report of it is
    /// refused.
    Try,
}

/// The time limit that has passed of a step that was claimed at `claimed`. None if none has.
pub fn overdue(ledger: &Ledger, claimed: Time, now: Time) -> Option<Overdue> {
    if let Some(limit) = ledger.deadline().filter(|limit| *limit <= now) {
        return Some(Overdue::Run(limit));
    }
    let limit = try_ends(ledger, claimed)?;
    (limit <= now).then_some(Overdue::Try)
}

/// Time at which the store has to check the limits of a step that was claimed at this time.
pub fn next_deadline(ledger: &Ledger, claimed: Time) -> Option<Time> {
    ledger.deadline().into_iter().chain(try_ends(ledger, claimed)).min()
}

fn try_ends(ledger: &Ledger, claimed: Time) -> Option<Time> {
    let running = ledger.run().status() == Status::Running;
    Some(claimed.after(try_limit(ledger.created()).filter(|_| running)?))
}

/// Maximum duration of one attempt at a remote step.
pub fn try_limit(created: &Created) -> Option<Duration> {
    // Reads only this field of the input, which may be long.
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Limited {
        timeout_ms: Option<u64>,
    }
    queue(&created.workflow)?;
    let limited: Limited = created.input.read().ok()?;
    limited.timeout_ms.map(Duration::from_millis)
}

/// The report that is recorded for an attempt that took too long.
pub fn took_too_long(ledger: &Ledger) -> Report {
    let limit = try_limit(ledger.created()).unwrap_or_default();
    let message = format!("no report came within {} ms", limit.as_millis());
    Report::Failed { error: Failure::new(FailureKind::Timeout, message), retry_after: None }
}

/// Whether the entries after a claim record this very report: its answer was lost, and it is made again.
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
    Failure::new(FailureKind::Fatal, message)
}

fn next_attempt(found: Option<&VisitRecord>) -> Option<u32> {
    match found {
        None => StepState::next_attempt(None),
        Some(VisitRecord::Step(step)) => StepState::next_attempt(Some(step)),
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
fn cancel(ledger: &mut Ledger, inbox: &[(u64, Message)]) -> Result<bool, RefusedEntry> {
    let Some((arrival, reason, by)) = wish(inbox) else { return Ok(false) };
    ledger.record(Entry::Cancelling { arrival, reason: reason.clone(), by: by.clone() })?;
    ledger.record(Entry::Cancelled { reason, by })?;
    Ok(true)
}

#[cfg(test)]
mod tests;
