//! The vocabulary of the ledger: every kind of entry, and the types of its fields.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::json::{InvalidJson, Payload};
use super::key::{Key, Label, Scope, Token};
use super::path::{Name, Visit};
use super::run::Parent;
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId};

/// Maximum size of the note at a step, in bytes of its JSON text.
pub const MAX_NOTE: usize = 1024;

/// One line of a run's ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum Entry {
    /// The run was created. Always the first entry, and only the first.
    Created(Box<Created>),
    /// A node claimed the run; the previous driver can write nothing any more.
    Claimed { node: NodeId },

    /// An attempt at a step begins.
    StepStarted {
        step: Visit,
        attempt: u32,
        #[serde(default, skip_serializing_if = "Class::is_keyed")]
        class: Class,
        /// Time at which the body began, as far as the driver knew the store's time. Absent if the entry itself was written
        /// before the body, and in ledgers of earlier versions: then the time of the entry is the beginning.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Time>,
        /// What the step is for, in the words of the workflow: the evidence for a person who decides about a doubt. At most
        /// [`MAX_NOTE`] bytes. Absent if the code gives none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        note: Option<Payload>,
    },
    /// A step has its result.
    StepCompleted { step: Visit, value: Payload },
    /// An attempt failed. Without `retry_at` the step has failed: there is no next attempt.
    StepFailed {
        step: Visit,
        attempt: u32,
        error: Failure,
        #[serde(rename = "retryAt", default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
    },
    /// A step is not needed.
    StepSkipped { step: Visit, reason: String },
    /// It is not known whether the step's effect took place.
    StepInDoubt { step: Visit, reason: String },
    /// An operator said what happened to a step in doubt.
    StepResolved { step: Visit, resolution: Resolution, by: String },

    /// A timer was set; it fires at `at` or later.
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

    /// A child run exists; `attached` if the run had started it before a restart.
    ChildStarted { child: Visit, run: RunId, attached: bool },
    /// The run took a child's end out of its inbox.
    ChildFinished { child: Visit, arrival: u64, outcome: Outcome },

    /// The result kept under a label: of this run, or, with a scope, one that it shares with other runs. A replay
    /// does not visit those that were made inside a step.
    Once {
        label: Label,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        scope: String,
        value: Payload,
        /// Whether it was made in the body of a step.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inside: bool,
    },
    /// A value that the workflow must not compute anew: a time, a random number, the winner of a race.
    Recorded {
        at: Visit,
        value: Payload,
        /// Of a race whose winner has failed: the visit of the failure. A retry tries that visit again, and decides
        /// the race anew. Absent if the winner has not failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<Visit>,
    },
    /// The driver saw an inbox message that has no entry of its own: a settled once, or a delivery that no hook waits
    /// for.
    Noted { arrival: u64 },

    /// Nothing can go on before `due`, or before a message arrives.
    Waiting { due: Option<Time> },
    /// Stopped until it is resumed.
    Paused { reason: PauseReason },
    /// Goes on after a pause.
    Resumed { by: String },
    /// The run was asked to end: from here on only its clean-up runs.
    Cancelling { arrival: u64, reason: String, by: String },

    /// The workflow returned a result.
    Completed { value: Payload },
    /// The workflow returned an error.
    Failed { error: Failure },
    /// The run was cancelled: by an operator, a program or its parent.
    Cancelled { reason: String, by: String },
    /// Ended by its time limit.
    TimedOut { limit: Time },

    /// A failed run begins again, with the full time limit that it had at first.
    Restarted {
        from: RestartFrom,
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    },
    /// The key no longer points to this run. With `arrival`, the driver learned of it by this message of its inbox.
    KeyReleased {
        by: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arrival: Option<u64>,
    },
}

/// Everything that a run was created with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Created {
    /// The workflow it executes.
    pub workflow: Name,
    /// Version of that workflow.
    pub workflow_version: Name,
    /// Input of the run.
    pub input: Payload,
    /// Idempotency key of the run.
    pub key: Key,
    /// Scope in which the key is unique.
    pub scope: Scope,
    /// Run id that goes into the effect keys.
    pub lineage: RunId,
    /// Time from which it may begin; absent if that is its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Time by which it must have ended; absent if it has no time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// The run that started it; absent if it was not started by a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run it was forked from, and that run's version at the fork; absent if it is no fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::ForkPoint>))]
    pub forked_from: Option<(RunId, u64)>,
}

/// Guarantee about a step's effect. It decides what happens after a crash that hides whether the effect took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = EffectClass))]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The body runs again under the same effect key.
    #[default]
    Keyed,
    /// The body never runs again by itself; the step is in doubt.
    AtMostOnce,
    /// The provider is asked first whether the effect took place.
    Reconcile,
    /// The fence table in the user's database tells whether it took place.
    Tx,
}

impl Class {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    fn is_keyed(&self) -> bool {
        *self == Self::Keyed
    }
}

/// Kind of a failure, which decides whether another attempt makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// Another attempt may succeed, so the retry policy decides.
    Retryable,
    /// No attempt will succeed, so the step fails at once.
    Fatal,
    /// The effect may or may not have taken place.
    Uncertain,
    /// The body of the step panicked.
    Panic,
    /// The body took too long.
    Timeout,
    /// The run was asked to end.
    Cancelled,
}

/// The kind as it is written on the wire.
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

/// An error as the ledger records it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Failure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Error message, for people.
    pub message: String,
    /// Code of the error, for programs: `CARD_DECLINED`, an HTTP status, an SQLSTATE. Absent if the error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Details of the error, as JSON. Absent if the error has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
}

impl Failure {
    /// A failure without code and data.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, data: None }
    }
}

/// Absent members are left out: stores of earlier versions hold fingerprints of this text.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Failure");
        shown.field("kind", &self.kind).field("message", &self.message);
        if let Some(code) = &self.code {
            shown.field("code", code);
        }
        if let Some(data) = &self.data {
            shown.field("data", data);
        }
        shown.finish()
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The run completed with this result.
    Completed(Payload),
    /// The run failed with this error.
    Failed(Failure),
    /// The run was cancelled for this reason.
    Cancelled(String),
    /// The run reached its time limit.
    TimedOut,
    /// The run ended in this status. Its history is past its retention, so the result, the error or the reason is no
    /// longer kept.
    Purged(Status),
}

/// An operator's answer about a step in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Resolution {
    /// The effect took place, with this result.
    Happened(Payload),
    /// The effect did not take place: the step runs again.
    DidNotHappen,
    /// The outcome stays unknown: the step has failed with this error.
    GiveUp(Failure),
}

/// Why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum PauseReason {
    /// An operator asked for it.
    Operator {
        /// Name of the operator.
        by: String,
    },
    /// A step is in doubt.
    InDoubt,
    /// Its nodes kept dying without progress.
    Poisoned,
    /// The code no longer fits the ledger; says where.
    Diverged(String),
}

/// Point from which a restarted run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RestartFrom {
    /// Keeps all results; what failed is tried again.
    Failure,
    /// Begins at the first step. Effect keys stay the same: they belong to the lineage.
    Beginning,
}

/// Accepted input from outside that the run has not consumed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum Message {
    /// A payload for a token of this run.
    Delivery { token: Token, payload: Payload },
    /// A child run has ended with this outcome.
    ChildEnded { child: Visit, run: RunId, outcome: Outcome },
    /// The run was asked to end.
    CancelRequested { reason: String, by: String },
    /// The parent run was cancelled, so this run is to end.
    ParentCancelled { parent: RunId },
    /// A `run_once` value that this run waited for is settled.
    OnceSettled { scope: String, label: Label },
    /// An operator has freed the key of the run while it was driven.
    KeyReleased { by: String },
}

impl Message {
    /// Reason and name of the caller, if the message asks the run to end.
    pub fn wishes_end(&self) -> Option<(String, String)> {
        match self {
            Self::CancelRequested { reason, by } => Some((reason.clone(), by.clone())),
            Self::ParentCancelled { parent } => {
                Some((format!("its parent {parent} was cancelled"), parent.to_string()))
            }
            _ => None,
        }
    }

    /// Approximate size in bytes: the value, and a fixed part for the rest.
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
    /// The outcome of the run, if this entry ends it.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self {
            Self::Completed { value } => Outcome::Completed(value.clone()),
            Self::Failed { error } => Outcome::Failed(error.clone()),
            Self::Cancelled { reason, .. } => Outcome::Cancelled(reason.clone()),
            Self::TimedOut { .. } => Outcome::TimedOut,
            _ => return None,
        })
    }

    /// Approximate number of bytes that the fold keeps of it in memory.
    pub fn weight(&self) -> usize {
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

    /// An attempt at a step that begins now or has its entry written before its body: without time or note.
    pub fn step_started(step: Visit, attempt: u32, class: Class) -> Self {
        Self::StepStarted { step, attempt, class, at: None, note: None }
    }

    /// Refuses values that could not be kept exactly. For entries from outside.
    pub fn check(&self) -> Result<(), InvalidJson> {
        match self {
            Self::Created(created) => created.input.check(),
            Self::StepStarted { note: Some(note), .. } => check_note(note).and_then(|()| note.check()),
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

    /// Name of the entry's kind, as stored.
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

/// Refuses a note that is too long.
pub(crate) fn check_note(note: &Payload) -> Result<(), InvalidJson> {
    match note.text().len() {
        ..=MAX_NOTE => Ok(()),
        bytes => Err(InvalidJson::Refused(format!(
            "the note at a step has {bytes} bytes; at most {MAX_NOTE} are accepted"
        ))),
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
    /// Number of entries so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    /// Adds an entry. The most common kinds are written from fixed text and their variable parts, without the
    /// serializer.
    pub fn push(&mut self, entry: &Entry) {
        self.next();
        match entry {
            Entry::StepStarted { step, attempt, class: Class::Keyed, at, note: None } => {
                self.write(r#"{"stepStarted":{"step":"#);
                self.json(step);
                self.write(r#","attempt":"#);
                self.json(attempt);
                if let Some(at) = at {
                    self.write(r#","at":"#);
                    self.json(at);
                }
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

    /// Adds all entries of `other`.
    pub fn extend(&mut self, other: &Self) {
        if other.count > 0 {
            self.next();
            self.text.extend_from_slice(&other.text[1..]);
            self.count += other.count;
        }
    }

    /// The entries as stored text.
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

/// Writes entries as stored text.
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
                let completed = Entry::StepCompleted { step: step.clone(), value: value.clone() };
                let mut entries = vec![completed, Entry::Completed { value: value.clone() }];
                for (class, at, note) in [
                    (Class::Keyed, None, None),
                    (Class::Tx, None, None),
                    (Class::Keyed, Some(Time(1_763_583_488_123)), None),
                    (Class::Tx, Some(Time(-1)), None),
                    (Class::Keyed, Some(Time(0)), Some(value.clone())),
                    (Class::AtMostOnce, None, Some(value)),
                ] {
                    entries.push(Entry::StepStarted { step: step.clone(), attempt: tick, class, at, note });
                }
                let text = encode(&entries);
                assert_eq!(text, serde_json::to_string(&entries).unwrap());
                assert_eq!(decode(&text).unwrap(), entries);
            }
        }
    }
    #[test]
    fn a_note_is_short_and_kept_exactly() {
        let entry = |note: String| Entry::StepStarted {
            step: Visit::parse("pay").unwrap(),
            attempt: 1,
            class: Class::AtMostOnce,
            at: None,
            note: Some(Payload::parse(&note).unwrap()),
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert_eq!(entry(text(MAX_NOTE)).check(), Ok(()));
        let refused = entry(text(MAX_NOTE + 1)).check().unwrap_err().to_string();
        assert!(refused.contains("1025 bytes") && refused.contains("1024"), "{refused}");
    }
}
