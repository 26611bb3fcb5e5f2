//! Ledger entries as sentences, for people who watch a run.

use semel::rules::entry::{Class, Entry, Failure, Outcome, PauseReason, Resolution, RestartFrom};
use semel::rules::json::Payload;
use semel::rules::path::Visit;

use crate::api::time;
use crate::cli::output::{one_line, plain, second};

/// What an entry says, in one line.
pub(super) fn sentence(entry: &Entry) -> String {
    step(entry).or_else(|| wait(entry)).unwrap_or_else(|| life(entry))
}

/// Entries of steps and values.
fn step(entry: &Entry) -> Option<String> {
    Some(match entry {
        Entry::StepStarted { step, attempt, class, note, .. } => {
            let class = match class {
                Class::Keyed => "",
                Class::AtMostOnce => ", at most once",
                Class::Reconcile => ", with a look-up after a crash",
                Class::Tx => ", transactional",
            };
            let note = note.as_ref().map(|note| format!(": {}", shown(note))).unwrap_or_default();
            format!("step {} started (attempt {attempt}{class}){note}", at(step))
        }
        Entry::StepCompleted { step, value } => format!("step {} completed: {}", at(step), shown(value)),
        Entry::StepFailed { step, attempt, error, retry_at: Some(retry) } => {
            let (step, error, next) = (at(step), failure(error), second(&time(*retry)));
            format!("step {step} failed (attempt {attempt}): {error}; next attempt {next}")
        }
        Entry::StepFailed { step, attempt, error, retry_at: None } => {
            format!("step {} failed (attempt {attempt}, the last one): {}", at(step), failure(error))
        }
        Entry::StepSkipped { step, reason } => format!("step {} skipped: {}", at(step), one_line(reason)),
        Entry::StepInDoubt { step, reason } => format!("step {} is in doubt: {}", at(step), one_line(reason)),
        Entry::StepResolved { step, resolution, by } => {
            let what = match resolution {
                Resolution::Happened(value) => format!("it happened, with {}", shown(value)),
                Resolution::DidNotHappen => "it did not happen".to_owned(),
                Resolution::GiveUp(error) => format!("given up: {}", failure(error)),
            };
            format!("step {} resolved by {}: {what}", at(step), plain(by))
        }
        Entry::Once { label, value, .. } => {
            format!("once {} recorded: {}", plain(label.as_str()), shown(value))
        }
        Entry::Recorded { at: visit, value, .. } => format!("{} recorded: {}", at(visit), shown(value)),
        _ => return None,
    })
}

/// Entries of timers, hooks, children and the inbox.
fn wait(entry: &Entry) -> Option<String> {
    Some(match entry {
        Entry::TimerSet { timer, at: fires } => {
            format!("timer {} set for {}", at(timer), second(&time(*fires)))
        }
        Entry::TimerFired { timer } => format!("timer {} fired", at(timer)),
        Entry::HookOpened { hook, token } => {
            format!("hook {} opened, token {}", at(hook), plain(token.as_str()))
        }
        Entry::HookConflicted { hook, token, owner } => {
            format!("hook {} conflicts: {owner} owns the token {}", at(hook), plain(token.as_str()))
        }
        Entry::HookReceived { hook, payload, .. } => format!("hook {} received {}", at(hook), shown(payload)),
        Entry::HookClosed { hook } => format!("hook {} closed", at(hook)),
        Entry::ChildStarted { child, run, attached: false } => format!("child {} started: {run}", at(child)),
        Entry::ChildStarted { child, run, attached: true } => {
            format!("child {} found again: {run}", at(child))
        }
        Entry::ChildFinished { child, outcome, .. } => format!("child {} {}", at(child), ended(outcome)),
        Entry::Noted { arrival } => format!("message {arrival} noted"),
        Entry::Waiting { due: Some(due) } => {
            format!("waiting until {}, or for a message", second(&time(*due)))
        }
        Entry::Waiting { due: None } => "waiting for a message".to_owned(),
        _ => return None,
    })
}

/// Entries about the run itself.
fn life(entry: &Entry) -> String {
    match entry {
        Entry::Created(created) => {
            let (workflow, version) = (created.workflow.as_str(), created.workflow_version.as_str());
            format!("created: {}@{}, input {}", plain(workflow), plain(version), shown(&created.input))
        }
        Entry::Claimed { node } => format!("claimed by {node}"),
        Entry::Paused { reason } => match reason {
            PauseReason::Operator { by } => format!("paused by {}", plain(by)),
            PauseReason::InDoubt => "paused: a step is in doubt".to_owned(),
            PauseReason::Poisoned => "paused: its nodes died repeatedly".to_owned(),
            PauseReason::Diverged(why) => {
                format!("paused: the code no longer matches the ledger: {}", one_line(why))
            }
        },
        Entry::Resumed { by } => format!("resumed by {}", plain(by)),
        Entry::Cancelling { reason, by, .. } => {
            format!("cancel requested by {}{}; cleaning up", plain(by), because(reason))
        }
        Entry::Completed { value } => format!("completed: {}", shown(value)),
        Entry::Failed { error } => format!("failed: {}", failure(error)),
        Entry::Cancelled { reason, by } => format!("cancelled by {}{}", plain(by), because(reason)),
        Entry::TimedOut { limit } => format!("timed out: its deadline was {}", second(&time(*limit))),
        Entry::Restarted { from, by, .. } => {
            let from = match from {
                RestartFrom::Failure => "the failure",
                RestartFrom::Beginning => "the beginning",
            };
            format!("restarted by {} from {from}", plain(by))
        }
        Entry::KeyReleased { by, .. } => format!("key released by {}", plain(by)),
        other => other.kind().to_owned(),
    }
}

/// Path of a visit; the number of the visit is shown from the second one on.
fn at(visit: &Visit) -> String {
    plain(&visit.to_string())
}

fn shown(value: &Payload) -> String {
    plain(value.text())
}

fn failure(error: &Failure) -> String {
    match &error.code {
        Some(code) => format!("{} ({})", one_line(&error.message), plain(code)),
        None => one_line(&error.message),
    }
}

fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed(value) => format!("completed: {}", shown(value)),
        Outcome::Failed(error) => format!("failed: {}", failure(error)),
        Outcome::Cancelled(reason) => format!("was cancelled{}", because(reason)),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Purged(status) => format!("has ended as {status}"),
    }
}

/// A reason after a colon; nothing if there is none.
fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", one_line(reason)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(json: &str) -> String {
        sentence(&serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}")))
    }

    #[test]
    fn entries_are_told_as_sentences() {
        let table = [
            (r#"{"stepStarted":{"step":"charge","attempt":1}}"#, "step charge started (attempt 1)"),
            (
                r#"{"stepFailed":{"step":"charge#2","attempt":3,
                    "error":{"kind":"fatal","message":"declined","code":"CARD"}}}"#,
                "step charge#2 failed (attempt 3, the last one): declined (CARD)",
            ),
            (r#"{"timerFired":{"timer":"cool-off"}}"#, "timer cool-off fired"),
            (r#"{"waiting":{"due":null}}"#, "waiting for a message"),
            (r#"{"paused":{"reason":{"operator":{"by":"local"}}}}"#, "paused by local"),
            (r#"{"cancelled":{"reason":"","by":"local"}}"#, "cancelled by local"),
            (r#"{"cancelled":{"reason":"too\u001blate","by":"local"}}"#, "cancelled by local: too late"),
            (r#"{"completed":{"value":{"n": 9007199254740993}}}"#, "completed: {\"n\": 9007199254740993}"),
        ];
        for (json, expected) in table {
            assert_eq!(told(json), expected);
        }
    }
}
