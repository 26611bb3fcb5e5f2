//! The vocabulary of the ledger: every kind of entry, and what they are made of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::json::{InvalidJson, Payload};
use super::key::{Key, Label, Scope, Token};
use super::path::{Name, Visit};
use super::run::Parent;
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId};

/// One line of a run's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum Entry {
    /// The run exists. Always the first entry, and only that.
    Created(Box<Created>),
    /// A node took the run; whoever drove it before can write nothing any more.
    Claimed { node: NodeId },

    /// An attempt at a step begins.
    StepStarted {
        step: Visit,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Class::is_keyed")]
        class: Class,
    },
    /// A step has its result.
    StepCompleted { step: Visit, value: Payload },
    /// An attempt failed. Without `retry_at` the step has failed for good.
    StepFailed {
        step: Visit,
        attempt: u32,
        error: Failure,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
    },
    /// A step is not needed.
    StepSkipped { step: Visit, reason: String },
    /// Nobody knows whether the step's effect took place.
    StepInDoubt { step: Visit, reason: String },
    /// Somebody said what became of a step in doubt.
    StepResolved { step: Visit, resolution: Resolution, by: String },

    /// A timer runs.
    TimerSet { timer: Visit, at: Time },
    /// A timer has fired; never before its time.
    TimerFired { timer: Visit },

    /// The run owns a token.
    HookOpened { hook: Visit, token: Token },
    /// Another run owns the token.
    HookConflicted { hook: Visit, token: Token, owner: RunId },
    /// The run took a delivery out of its inbox.
    HookReceived { hook: Visit, arrival: u64, payload: Payload },
    /// The token is free again.
    HookClosed { hook: Visit },

    /// A child run exists; `attached` if an earlier life of this run had started it.
    ChildStarted { child: Visit, run: RunId, attached: bool },
    /// A child's end has been taken out of the inbox.
    ChildFinished { child: Visit, arrival: u64, outcome: Outcome },

    /// The result kept under a label: of this run, or, with a scope, the one that it shares with others.
    /// A replay does not come by those that were made inside of a step.
    Once {
        label: Label,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        scope: String,
        value: Payload,
        /// Made in the body of a step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inside: bool,
    },
    /// A value the workflow may not compute anew: a time, a random number, the winner of a race.
    Recorded {
        at: Visit,
        value: Payload,
        /// Of a race whose winner has failed: where the failure stands. A retry tries that again, and decides the race
        /// anew. Absent if the winner has not failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Visit>,
    },
    /// An inbox message without an entry of its own was seen: a settled once, a word for nobody.
    Noted { arrival: u64 },

    /// Nothing can go on before `due` or before something arrives.
    Waiting { due: Option<Time> },
    /// Stopped until somebody resumes it.
    Paused { reason: PauseReason },
    /// Goes on after a pause.
    Resumed { by: String },
    /// The run was asked to end: from here on only its clean-up goes on.
    Cancelling { arrival: u64, reason: String, by: String },

    /// Ended with a result.
    Completed { value: Payload },
    /// Ended with an error.
    Failed { error: Failure },
    /// Ended by a cancel.
    Cancelled { reason: String, by: String },
    /// Ended by its time limit.
    TimedOut { limit: Time },

    /// A failed run begins again, with as much time as it had at first.
    Restarted {
        from: RestartFrom,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    },
    /// The key no longer points at this run. With `arrival`, the driver heard of it by this message of its inbox.
    KeyReleased {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arrival: Option<u64>,
    },
}

/// What a run was created with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Created {
    /// The workflow it executes.
    pub workflow: Name,
    /// The workflow's version.
    pub workflow_version: Name,
    /// The input.
    pub input: Payload,
    /// The key.
    pub key: Key,
    /// Where the key is unique.
    pub scope: Scope,
    /// The root of its effects' identities.
    pub lineage: RunId,
    /// When it may begin, if that is later than its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// When it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Who started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run it was forked from, and that run's version at the fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<(RunId, u64)>,
}

/// How often a step's effect may take place, and so what to do when a crash hides whether it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Runs again under the same effect key.
    #[default]
    Keyed,
    /// Never runs again by itself.
    AtMostOnce,
    /// The provider is asked first.
    Reconcile,
    /// The user's database tells.
    Tx,
}

impl Class {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_keyed(&self) -> bool {
        *self == Self::Keyed
    }
}

/// What kind of failure it was, and so whether another attempt makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Another attempt may succeed.
    Retryable,
    /// No attempt will succeed.
    Fatal,
    /// The effect may have taken place.
    Uncertain,
    /// The body panicked.
    Panic,
    /// The body took too long.
    Timeout,
    /// The run was asked to end.
    Cancelled,
}

/// The word for it on the wire.
impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Retryable => "retryable",
            Self::Fatal => "fatal",
            Self::Uncertain => "uncertain",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
        })
    }
}

/// An error, as recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// What it said.
    pub message: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// With this result.
    Completed(Payload),
    /// With this error.
    Failed(Failure),
    /// By a cancel, for this reason.
    Cancelled(String),
    /// By its time limit.
    TimedOut,
    /// In this state. Its history is past its retention, so that the result, the error or the reason is no longer kept.
    Purged(Status),
}

/// What somebody knows about a step in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// It took place, with this result.
    Happened(Payload),
    /// It did not take place: run it again.
    DidNotHappen,
    /// Give up: the step has failed.
    GiveUp(Failure),
}

/// Why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PauseReason {
    /// An operator asked for it.
    Operator {
        /// Who.
        by: String,
    },
    /// A step is in doubt.
    InDoubt,
    /// Its claims ended in crashes without progress.
    Poisoned,
    /// The code no longer fits the ledger.
    Diverged(String),
}

/// Where a restarted run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartFrom {
    /// With all results kept; what failed is tried again.
    Failure,
    /// At the first step. Effect keys stay the same: they belong to the lineage.
    Beginning,
}

/// Accepted input from outside that the run has not consumed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum Message {
    /// A payload for a token of this run.
    Delivery { token: Token, payload: Payload },
    /// A child has ended.
    ChildEnded { child: Visit, run: RunId, outcome: Outcome },
    /// Somebody asked the run to end.
    CancelRequested { reason: String, by: String },
    /// The parent was cancelled.
    ParentCancelled { parent: RunId },
    /// A once that this run waited for is settled.
    OnceSettled { scope: String, label: Label },
    /// An operator has freed the key of the run while it was driven.
    KeyReleased { by: String },
}

impl Message {
    /// Why and by whom the run is asked to end, if it is.
    pub fn wishes_end(&self) -> Option<(String, String)> {
        match self {
            Self::CancelRequested { reason, by } => Some((reason.clone(), by.clone())),
            Self::ParentCancelled { parent } => {
                Some((format!("its parent {parent} was cancelled"), parent.to_string()))
            }
            _ => None,
        }
    }

    /// Roughly how many bytes it takes: its value, and what is around it.
    pub fn weight(&self) -> usize {
        const FRAME: usize = 200;
        FRAME
            + match self {
                Self::Delivery { payload, .. } => payload.text().len(),
                Self::ChildEnded { outcome: Outcome::Completed(value), .. } => value.text().len(),
                Self::CancelRequested { reason, by } => reason.len() + by.len(),
                _ => 0,
            }
    }
}

impl Entry {
    /// How it ends the run, if it does.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            Self::Completed { value } => Outcome::Completed(value.clone()),
            Self::Failed { error } => Outcome::Failed(error.clone()),
            Self::Cancelled { reason, .. } => Outcome::Cancelled(reason.clone()),
            Self::TimedOut { .. } => Outcome::TimedOut,
            _ => return None,
        })
    }

    /// Roughly how many bytes are kept of it in memory: its value, and its place in the fold.
    pub(crate) fn weight(&self) -> usize {
        const PLACE: usize = 200;
        PLACE
            + match self {
                Self::Created(created) => created.input.text().len(),
                Self::StepCompleted { value, .. }
                | Self::Once { value, .. }
                | Self::Recorded { value, .. }
                | Self::HookReceived { payload: value, .. } => value.text().len(),
                _ => 0,
            }
    }

    /// Refuses values that could not be kept exactly: for entries that come from outside.
    pub fn check(&self) -> Result<(), InvalidJson> {
        match self {
            Self::Created(created) => created.input.check(),
            Self::StepCompleted { value, .. }
            | Self::Once { value, .. }
            | Self::Recorded { value, .. }
            | Self::Completed { value }
            | Self::HookReceived { payload: value, .. }
            | Self::StepResolved { resolution: Resolution::Happened(value), .. }
            | Self::ChildFinished { outcome: Outcome::Completed(value), .. } => value.check(),
            _ => Ok(()),
        }
    }

    /// The name of its kind, as written.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::Claimed { .. } => "claimed",
            Self::StepStarted { .. } => "stepStarted",
            Self::StepCompleted { .. } => "stepCompleted",
            Self::StepFailed { .. } => "stepFailed",
            Self::StepSkipped { .. } => "stepSkipped",
            Self::StepInDoubt { .. } => "stepInDoubt",
            Self::StepResolved { .. } => "stepResolved",
            Self::TimerSet { .. } => "timerSet",
            Self::TimerFired { .. } => "timerFired",
            Self::HookOpened { .. } => "hookOpened",
            Self::HookConflicted { .. } => "hookConflicted",
            Self::HookReceived { .. } => "hookReceived",
            Self::HookClosed { .. } => "hookClosed",
            Self::ChildStarted { .. } => "childStarted",
            Self::ChildFinished { .. } => "childFinished",
            Self::Once { .. } => "once",
            Self::Recorded { .. } => "recorded",
            Self::Noted { .. } => "noted",
            Self::Waiting { .. } => "waiting",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Cancelling { .. } => "cancelling",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::TimedOut { .. } => "timedOut",
            Self::Restarted { .. } => "restarted",
            Self::KeyReleased { .. } => "keyReleased",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Entries of one commit as they are stored: a JSON list, written entry by entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    text: Vec<u8>,
    count: u64,
}

impl Lines {
    /// How many entries.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes they have so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds one. Those that almost every run has are put together from what is always the same in them, and the rest.
    pub fn push(&mut self, entry: &Entry) {
        self.next();
        match entry {
            Entry::StepStarted { step, attempt, class: Class::Keyed } => {
                self.write(r#"{"stepStarted":{"step":"#);
                self.json(step);
                self.write(r#","attempt":"#);
                self.json(attempt);
                self.write("}}");
            }
            Entry::StepCompleted { step, value } => {
                self.write(r#"{"stepCompleted":{"step":"#);
                self.json(step);
                self.write(r#","value":"#);
                self.write(value.text());
                self.write("}}");
            }
            Entry::Completed { value } => {
                self.write(r#"{"completed":{"value":"#);
                self.write(value.text());
                self.write("}}");
            }
            entry => self.json(entry),
        }
        self.count += 1;
    }

    fn write(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn json(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut self.text, value).expect("entries are plain data with text keys");
    }

    /// Adds all of another.
    pub fn extend(&mut self, other: &Self) {
        if other.count > 0 {
            self.next();
            self.text.extend_from_slice(&other.text[1..]);
            self.count += other.count;
        }
    }

    /// The text.
    pub fn finish(mut self) -> String {
        if self.count == 0 {
            self.text.push(b'[');
        }
        self.text.push(b']');
        String::from_utf8(self.text).expect("JSON is UTF-8")
    }

    fn next(&mut self) {
        if self.count == 0 {
            // The two entries of a step fit without growing.
            self.text.reserve(256);
        }
        self.text.push(if self.count == 0 { b'[' } else { b',' });
    }
}

/// Entries as they are stored.
pub fn encode(entries: &[Entry]) -> String {
    let mut lines = Lines::default();
    for entry in entries {
        lines.push(entry);
    }
    lines.finish()
}

/// Reads what [`encode`] wrote.
pub fn decode(text: &str) -> serde_json::Result<Vec<Entry>> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::path::Path;

    #[test]
    fn entries_of_steps_and_ends_are_written_as_all_others_are() {
        for path in ["a", "left/pack[item-3]", "say \"no\"", "back\\slash", "größe/日本"] {
            for tick in [1, 2, 4_000_000_000] {
                let step = Visit { path: Path::parse(path).unwrap(), tick };
                let value = Payload::parse(r#"{"a": [1, "\" ü", null]}"#).unwrap();
                let started = |class| Entry::StepStarted { step: step.clone(), attempt: tick, class };
                let completed = Entry::StepCompleted { step: step.clone(), value: value.clone() };
                let entries =
                    [started(Class::Keyed), started(Class::Tx), completed, Entry::Completed { value }];
                assert_eq!(encode(&entries), serde_json::to_string(&entries).unwrap());
            }
        }
    }
}
