//! An archive: everything that a store holds, line by line, in a form that is independent of the database.
//!
//! Values that are stored as text (entries, messages, payloads) appear in a line as that text, byte for byte. No run
//! in an archive has a driver: a run that was driven when it was exported is due since its last commit, as if its
//! node had died.

mod check;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use check::{Checker, Finding};

use super::attention::Attention;
use super::deliver::PastCall;
use super::entry::{Entry, decode};
use super::json::{InvalidJson, Payload};
use super::key::{CallId, Fingerprint, Key, Label, RecordId, Scope, Token};
use super::path::{Name, Visit};
use super::receipt::{ReceiptKind, Receipts};
use super::record::Record;
use super::run::{NewRun, Retention, Run, RunState};
use super::status::Status;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};

/// One line of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ArchiveLine {
    /// A run with all that belongs to it.
    Run(Box<RunLine>),
    /// A run that waits for the end of another run. These lines follow all runs, because either of the two may be the
    /// older one.
    Watcher(WatcherLine),
    /// A `run_once` value whose scope is wider than one run.
    Once(OnceLine),
    /// A record, which belongs to no workspace.
    Record(RecordLine),
}

/// A run in an archive: its header and everything that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of NewRun, State and Run, which say what they are")]
pub struct RunLine {
    pub id: RunId,
    pub workspace: WorkspaceId,
    pub workflow: Name,
    pub workflow_version: Name,
    pub scope: Scope,
    pub key: Key,
    pub holds_key: bool,
    #[serde(with = "hex")]
    pub fingerprint: Fingerprint,
    pub lineage: RunId,
    pub parent: Option<RunId>,
    pub retention: Retention,
    pub created: Time,
    pub status: Status,
    pub version: u64,
    pub due: Option<Time>,
    pub stalls: u32,
    pub ended: Option<Time>,
    pub purge: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    pub ties: bool,
    pub arrivals: u64,
    pub purged: bool,
    /// The ledger, one element per commit.
    pub commits: Vec<CommitLine>,
    /// Messages that the run has not consumed.
    pub inbox: Vec<MessageLine>,
    /// Receipts of duplicates that this run absorbed.
    pub receipts: Vec<(ReceiptKind, Receipts)>,
    /// Tokens that the run owns, in order.
    pub tokens: Vec<Token>,
    /// Calls that are remembered for as long as the run's history, ordered by scope and id.
    pub calls: Vec<CallLine>,
}

/// The entries of one commit, with its place in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitLine {
    /// Number of ledger entries before these.
    pub seq: u64,
    /// Time at which the commit was made.
    pub at: Time,
    /// The entries as the text that the store holds.
    pub entries: String,
}

/// An unconsumed message in a run's inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// Number of the message in its inbox.
    pub arrival: u64,
    /// Time at which the message was accepted.
    pub at: Time,
    /// The message as the text that the store holds.
    pub message: String,
}

/// A call that was accepted under a call id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallLine {
    /// Scope within which the call id is unique.
    pub scope: String,
    /// The call id that the caller gave.
    pub id: CallId,
    /// The run that the call changed.
    pub run: RunId,
    /// Fingerprint of the request, in hexadecimal digits.
    #[serde(with = "hex")]
    pub fingerprint: Fingerprint,
    /// Result of the call: the arrival of a delivery, or the version after a control.
    pub result: u64,
}

impl CallLine {
    /// The call in the form in which the store remembers it.
    pub fn call(&self) -> PastCall {
        PastCall { run: self.run, fingerprint: self.fingerprint, result: self.result }
    }
}

/// A run that waits for the end of another run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatcherLine {
    /// The run that waits.
    pub run: RunId,
    /// Visit in the waiting run that gets the result.
    pub visit: Visit,
    /// The run whose end is awaited.
    pub waits_for: RunId,
}

/// A `run_once` value whose scope is wider than one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of OnceRow, which say what they are")]
pub struct OnceLine {
    pub workspace: WorkspaceId,
    pub scope: String,
    pub label: Label,
    pub owner: RunId,
    pub fence: u64,
    /// The result as the text that the store holds; absent while it is being made.
    pub value: Option<String>,
    pub expires: Option<Time>,
    pub waiters: Vec<RunId>,
}

/// A record of the server, as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of Record, which say what they are")]
pub struct RecordLine {
    pub kind: Name,
    pub id: RecordId,
    pub version: u64,
    /// Body of the record, as the text that the store holds.
    pub body: String,
    pub at: Time,
    pub expires: Option<Time>,
}

impl RecordLine {
    /// Makes the line of a record.
    pub fn of(record: &Record) -> Self {
        let Record { kind, id, version, body, at, expires } = record.clone();
        Self { kind, id, version, body: body.text().to_owned(), at, expires }
    }

    /// The record in the form in which the store keeps it.
    pub fn record(&self) -> Result<Record, InvalidJson> {
        let Self { kind, id, version, body, at, expires } = self.clone();
        Ok(Record { kind, id, version, body: Payload::parse(&body)?, at, expires })
    }

    /// Whether the version is one that a store can have given: a positive `i64`.
    pub fn has_version(&self) -> bool {
        i64::try_from(self.version).is_ok_and(|version| version > 0)
    }
}

impl RunLine {
    /// The line of a run's header, without anything else that belongs to the run.
    pub fn bare(run: &Run) -> Self {
        let Run { new, state, arrivals, purged, .. } = run.clone();
        let new = Arc::unwrap_or_clone(new);
        Self {
            id: new.id,
            workspace: new.workspace,
            workflow: new.workflow,
            workflow_version: new.workflow_version,
            scope: new.scope,
            key: new.key,
            holds_key: state.holds_key,
            fingerprint: new.fingerprint,
            lineage: new.lineage,
            parent: new.parent,
            retention: new.retention,
            created: new.created,
            status: state.status,
            version: state.version,
            due: state.due,
            stalls: state.stalls,
            ended: state.ended,
            purge: state.purge,
            deadline: state.deadline,
            ties: state.ties,
            arrivals,
            purged,
            commits: Vec::new(),
            inbox: Vec::new(),
            receipts: Vec::new(),
            tokens: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Removes the driver of a run: the run becomes due since its last commit.
    pub fn leave_driver(&mut self) {
        self.due = self.commits.last().map(|commit| commit.at).or(Some(self.created));
    }

    /// Why the run is paused: its latest pause.
    fn attention(&self) -> Option<Attention> {
        if self.status != Status::Paused {
            return None;
        }
        let paused = |entry: &Entry| match entry {
            Entry::Paused { reason } => Some(Attention::of(reason)),
            _ => None,
        };
        self.entries_from_the_last().find_map(|(_, entry)| paused(&entry))
    }

    /// Where and when the run has opened this token last.
    pub(crate) fn opened(&self, token: &Token) -> Option<(Visit, Time)> {
        let opened = |(at, entry): (Time, Entry)| match entry {
            Entry::HookOpened { hook, token: opened } if opened == *token => Some((hook, at)),
            _ => None,
        };
        self.entries_from_the_last().find_map(opened)
    }

    /// The entries of the ledger, the last one first, with the times of their commits. What cannot be read is left out: the
    /// [`Checker`] reports it.
    pub(crate) fn entries_from_the_last(&self) -> impl Iterator<Item = (Time, Entry)> + '_ {
        self.commits.iter().rev().flat_map(|commit| {
            let entries = decode(&commit.entries).unwrap_or_default();
            entries.into_iter().rev().map(|entry| (commit.at, entry))
        })
    }

    /// The run's header, under a number of the store that imports it.
    pub fn run(&self, num: i64) -> Run {
        Run {
            num,
            new: Arc::new(NewRun {
                id: self.id,
                workspace: self.workspace,
                workflow: self.workflow.clone(),
                workflow_version: self.workflow_version.clone(),
                scope: self.scope.clone(),
                key: self.key.clone(),
                fingerprint: self.fingerprint,
                lineage: self.lineage,
                parent: self.parent,
                retention: self.retention,
                created: self.created,
            }),
            state: RunState {
                status: self.status,
                version: self.version,
                due: self.due,
                node: None,
                stalls: self.stalls,
                ended: self.ended,
                purge: self.purge,
                deadline: self.deadline,
                holds_key: self.holds_key,
                ties: self.ties,
                attention: self.attention(),
            },
            arrivals: self.arrivals,
            purged: self.purged,
        }
    }
}

impl ArchiveLine {
    /// The workspace it belongs to; a watcher's is that of its runs, and a record has none.
    pub fn workspace(&self) -> Option<WorkspaceId> {
        match self {
            Self::Run(run) => Some(run.workspace),
            Self::Once(once) => Some(once.workspace),
            Self::Watcher(_) | Self::Record(_) => None,
        }
    }
}

/// A fingerprint as hexadecimal digits.
mod hex {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Fingerprint;

    pub(super) fn serialize<S: Serializer>(print: &Fingerprint, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{print:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fingerprint, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let digits = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let mut bytes = [0; 32];
        for (byte, n) in bytes.iter_mut().zip(0..) {
            let pair = text.get(2 * n..2 * n + 2).filter(|_| digits);
            let pair = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = pair.ok_or_else(|| D::Error::custom("a fingerprint has 64 hexadecimal digits"))?;
        }
        Ok(Fingerprint(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::run::tests::run;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let mut line = RunLine::bare(&run(Status::Running));
        line.retention.key = std::time::Duration::MAX;
        line.commits.push(CommitLine { seq: 0, at: Time(5), entries: "[{\n}]".to_owned() });
        line.leave_driver();
        let text = serde_json::to_string(&ArchiveLine::Run(Box::new(line.clone()))).unwrap();
        assert!(!text.contains('\n'), "one line: {text}");
        assert_eq!(
            serde_json::from_str::<ArchiveLine>(&text).unwrap(),
            ArchiveLine::Run(Box::new(line.clone()))
        );
        assert_eq!((line.due, line.run(7).num), (Some(Time(5)), 7));
    }

    #[test]
    fn a_paused_run_is_imported_with_the_kind_of_its_latest_pause() {
        let mut line = RunLine::bare(&run(Status::Paused));
        assert_eq!(line.run(7).state.attention, None);
        for (n, (reason, kind)) in [
            (r#"{"operator":{"by":"ann"}}"#, Attention::Operator),
            (r#""inDoubt""#, Attention::InDoubt),
            (r#"{"diverged":"here"}"#, Attention::Diverged),
        ]
        .into_iter()
        .enumerate()
        {
            let entries = format!(r#"[{{"paused":{{"reason":{reason}}}}}]"#);
            line.commits.push(CommitLine { seq: n as u64, at: Time(5), entries });
            assert_eq!(line.run(7).state.attention, Some(kind));
        }
        line.status = Status::Pending;
        assert_eq!(line.run(7).state.attention, None);
    }

    #[test]
    fn a_fingerprint_that_is_none_is_refused() {
        let text = serde_json::to_string(&RunLine::bare(&run(Status::Pending))).unwrap();
        for wrong in ["0", "zz", "é0"] {
            let broken = text.replacen("00", wrong, 1);
            assert!(serde_json::from_str::<RunLine>(&broken).is_err(), "{wrong}");
        }
    }
}
