//! An archive: everything a store holds, line by line, whatever store it is of.
//!
//! What is stored as text (entries, messages, values) stands in a line as that text, byte for byte. Nobody drives a run
//! of an archive: one that had a driver is due since its last commit, as if its node had died.

mod check;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use check::{Checker, Finding};

use super::deliver::PastCall;
use super::json::{InvalidJson, Payload};
use super::key::{CallId, Fingerprint, Key, Label, RecordId, Scope, Token};
use super::path::{Name, Visit};
use super::receipt::{ReceiptKind, Receipts};
use super::record::Record;
use super::run::{NewRun, Retention, Run, State};
use super::status::Status;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};

/// One line of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// A run with all that belongs to it.
    Run(Box<RunLine>),
    /// A run that waits for another's end. After all runs: either of the two may be the older one.
    Watcher(WatcherLine),
    /// A once beyond one run.
    Once(OnceLine),
    /// A record. It belongs to no workspace.
    Record(RecordLine),
}

/// A run.
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
    /// The ledger, commit by commit.
    pub commits: Vec<CommitLine>,
    /// What it has not consumed.
    pub inbox: Vec<MessageLine>,
    /// What was absorbed on it.
    pub receipts: Vec<(ReceiptKind, Receipts)>,
    /// The tokens it owns, in order.
    pub tokens: Vec<Token>,
    /// The calls that are remembered for as long as its history, in the order of scope and id.
    pub calls: Vec<CallLine>,
}

/// The entries of one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitLine {
    /// How many entries come before these.
    pub seq: u64,
    /// When it was made.
    pub at: Time,
    /// The entries, as stored.
    pub entries: String,
}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageLine {
    /// Its number.
    pub arrival: u64,
    /// When it came.
    pub at: Time,
    /// The message, as stored.
    pub message: String,
}

/// A call that was accepted under an id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallLine {
    /// Among what the id is unique.
    pub scope: String,
    /// The id.
    pub id: CallId,
    /// The run that it changed.
    pub run: RunId,
    /// What was asked.
    #[serde(with = "hex")]
    pub fingerprint: Fingerprint,
    /// What it came to.
    pub result: u64,
}

impl CallLine {
    /// As the store remembers it.
    pub fn call(&self) -> PastCall {
        PastCall { run: self.run, fingerprint: self.fingerprint, result: self.result }
    }
}

/// A run that waits for another's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatcherLine {
    /// Which waits.
    pub run: RunId,
    /// Where in it.
    pub visit: Visit,
    /// For whose end.
    pub waits_for: RunId,
}

/// A once beyond one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of OnceRow, which say what they are")]
pub struct OnceLine {
    pub workspace: WorkspaceId,
    pub scope: String,
    pub label: Label,
    pub owner: RunId,
    pub fence: u64,
    /// The result, as stored.
    pub value: Option<String>,
    pub expires: Option<Time>,
    pub waiters: Vec<RunId>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the members of Record, which say what they are")]
pub struct RecordLine {
    pub kind: Name,
    pub id: RecordId,
    pub version: u64,
    /// What it says, as stored.
    pub body: String,
    pub at: Time,
    pub expires: Option<Time>,
}

impl RecordLine {
    /// A record as a line.
    pub fn of(record: &Record) -> Self {
        let Record { kind, id, version, body, at, expires } = record.clone();
        Self { kind, id, version, body: body.text().to_owned(), at, expires }
    }

    /// As the store keeps it.
    pub fn record(&self) -> Result<Record, InvalidJson> {
        let Self { kind, id, version, body, at, expires } = self.clone();
        Ok(Record { kind, id, version, body: Payload::parse(&body)?, at, expires })
    }

    /// Whether its version is one that a store has given.
    pub fn has_version(&self) -> bool {
        i64::try_from(self.version).is_ok_and(|version| version > 0)
    }
}

impl RunLine {
    /// A run without what belongs to it.
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

    /// Makes a run that somebody drove one that nobody does: due since its last commit.
    pub fn leave_driver(&mut self) {
        self.due = self.commits.last().map(|commit| commit.at).or(Some(self.created));
    }

    /// Its header, under a number of the store that it goes to.
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
            state: State {
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
            },
            arrivals: self.arrivals,
            purged: self.purged,
        }
    }
}

impl Line {
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
        let text = serde_json::to_string(&Line::Run(Box::new(line.clone()))).unwrap();
        assert!(!text.contains('\n'), "one line: {text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), Line::Run(Box::new(line.clone())));
        assert_eq!((line.due, line.run(7).num), (Some(Time(5)), 7));
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
