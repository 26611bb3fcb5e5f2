//! What travels between a worker and its server, as JSON. Used by both sides.
//!
//! The words are those of the [store](crate::store): a start is a [`Start`], a run its whole header. Only the tenant is
//! never said; the server knows it by the credential. A commit travels as the entries that it appends: the server has them
//! checked by a ledger of its own before they get anywhere.

mod control;
mod pieces;
mod refusal;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::control::ControlCall;
pub use self::refusal::ErrorView;
use crate::clock::Time;
use crate::error::Error;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::commit::{ChildStart, Commit, Content, Draft, Write};
use crate::rules::entry::{Entry, Lines, Outcome};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::Token;
use crate::rules::ledger::{Ledger, Refused};
use crate::rules::path::{Name, Visit};
use crate::rules::run::Run;
use crate::rules::start::{Start, default_version};
use crate::store::Arrival;

/// The prefix of the server's routes.
pub const PREFIX: &str = "/api/v1";
/// A worker registers, and `GET` lists them.
pub const WORKERS: &str = "/workers";
/// Due runs are taken.
pub const CLAIM: &str = "/workers/claim";
/// Entries of many runs are appended.
pub const COMMIT: &str = "/workers/commit";
/// Many runs are started.
pub const START: &str = "/workers/start";
/// A worker lives.
pub const HEARTBEAT: &str = "/workers/heartbeat";
/// A worker goes.
pub const RELEASE: &str = "/workers/release";
/// A once is claimed, settled or released.
pub const ONCE: &str = "/workers/once";
/// A payload is delivered.
pub const DELIVER: &str = "/workers/deliver";
/// An operator acts.
pub const CONTROL: &str = "/workers/control";
/// A run is looked up.
pub const FIND: &str = "/workers/find";
/// Runs are listed.
pub const LIST: &str = "/workers/list";
/// The entries of a run are read.
pub const LEDGER: &str = "/workers/ledger";
/// The inbox of a run is read.
pub const INBOX: &str = "/workers/inbox";
/// What was absorbed on a run is read.
pub const RECEIPTS: &str = "/workers/receipts";
/// What happens is told, line by line.
pub const WAKES: &str = "/workers/wakes";

/// The longest body of a call: eight of the longest values.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// Commits or starts in one call.
pub const MOST: usize = 1_000;
/// How long a claim may wait for something to become due, in milliseconds.
pub const MOST_WAIT_MS: u64 = 60_000;

/// A worker registers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Join {
    /// Its own id, drawn anew for every life.
    pub node: NodeId,
    /// What it calls itself.
    pub name: String,
    /// The workflows (`name@version`) that it drives, and the queues (`queue:name`) that it serves. What it claims later is
    /// added.
    #[serde(default)]
    pub serves: Vec<String>,
    /// How long the server believes in it without a heartbeat.
    pub lease_ms: u64,
}

/// A worker is registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joined {
    /// Its id in ledgers and headers: no other workspace can have the same, whatever id it draws.
    pub node: NodeId,
    /// The workspace of its credential.
    pub workspace: WorkspaceId,
    /// Until when the server believes in it.
    pub until: Time,
}

/// A worker lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Heartbeat {
    /// Its own id.
    pub node: NodeId,
    /// How long the server believes in it from now on.
    pub lease_ms: u64,
    /// The steps of queues that it is at, at most 1,000: it is told which of them to stop. If it is absent, the server
    /// goes by what it has handed to this worker since it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<AtWork>>,
}

/// A step of a queue that a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AtWork {
    /// The run that stands for it.
    pub run: RunId,
    /// The fence that it was handed out with.
    pub fence: u64,
}

/// A step that a worker should stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StopView {
    /// The run that stands for it.
    pub run: RunId,
    /// Why.
    pub reason: StopReason,
}

/// Why a worker should stop a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It, or the run that handed it over, was cancelled. A result is still taken unless the step has ended; a failure
    /// ends it.
    Cancelled,
    /// It has ended otherwise.
    Ended,
    /// It is in other hands, or paused.
    Lost,
}

/// A worker goes; its runs are free.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// Its own id.
    pub node: NodeId,
}

/// Until when the server believes in a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leased {
    /// The server's time.
    pub until: Time,
    /// In the answer to a heartbeat: the steps of queues that the worker should stop. Absent if there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<StopView>,
}

/// A worker asks for due runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimCall {
    /// Its own id.
    pub node: NodeId,
    /// What it can drive.
    pub workflows: Vec<Served>,
    /// At most this many.
    pub limit: usize,
    /// How long to wait for one.
    #[serde(default)]
    pub wait_ms: u64,
    /// Whether it keeps the ledgers of runs that it has put to rest. These then come without entries; if the worker has
    /// one no longer, it reads it.
    #[serde(default)]
    pub keeps: bool,
}

/// A version of a workflow that a worker can drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Served {
    /// The workflow.
    pub workflow: Name,
    /// Its version; `1` if not given, as in a start.
    #[serde(default = "default_version")]
    pub workflow_version: Name,
}

/// Entries of many runs. `E` is the text of entries: borrowed where it is read, owned where it is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitCall<E> {
    /// One for each run.
    pub commits: Vec<CommitItem<E>>,
}

/// One commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitItem<E> {
    /// The run.
    pub run: RunId,
    /// The worker's own id, as in its claim: the run must be in the hands of this node. If it is absent, the run must be
    /// in the hands of a node that was registered with the same API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// How many entries its driver has seen.
    pub expected: u64,
    /// How many arrivals of its inbox its driver has seen.
    #[serde(default)]
    pub seen: u64,
    /// The entries to append, as a list.
    pub entries: E,
    /// What the store settles, and where among the entries.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<PlacedDraft>,
}

/// A draft and its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacedDraft {
    /// How many of the entries come before it.
    pub after: u64,
    /// What is asked.
    pub draft: DraftView,
}

/// The wish for an entry whose final form the store decides.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the fields say what they are; each kind has its line")]
pub enum DraftView {
    /// Own a token.
    OpenHook { hook: Visit, token: Token },
    /// Start a child.
    StartChild { child: Visit, run: RunId, workflow: Name, workflow_version: Name, input: Payload },
}

impl CommitItem<Box<RawValue>> {
    /// A commit as it travels.
    pub fn of(commit: &Commit) -> Result<Self, Error> {
        let (mut lines, mut drafts) = (Lines::default(), Vec::new());
        let text = match &commit.content {
            Content::Ready(text) => text.clone(),
            Content::Drafts(all) => {
                for draft in all {
                    let draft = match draft {
                        Draft::Entries(before) => {
                            lines.extend(before);
                            continue;
                        }
                        Draft::OpenHook { hook, token } => {
                            DraftView::OpenHook { hook: hook.clone(), token: token.clone() }
                        }
                        Draft::StartChild(start) => {
                            let ChildStart { child, run, workflow, workflow_version, input, .. } =
                                (**start).clone();
                            DraftView::StartChild { child, run, workflow, workflow_version, input }
                        }
                    };
                    drafts.push(PlacedDraft { after: lines.count(), draft });
                }
                lines.finish()
            }
        };
        let entries = RawValue::from_string(text).map_err(|wrong| InvalidJson::Refused(wrong.to_string()))?;
        let Write { run, node, expected, seen, .. } = **commit;
        Ok(Self { run, node, expected, seen, entries, drafts })
    }
}

impl DraftView {
    /// Puts it into the next commit of a ledger, or refuses it.
    pub fn record(self, ledger: &mut Ledger) -> Result<(), Refused> {
        match self {
            Self::OpenHook { hook, token } => ledger.open_hook(hook, token),
            Self::StartChild { child, run, workflow, workflow_version, input } => {
                ledger.start_child(child, run, workflow, workflow_version, input)
            }
        }
    }

    /// Refuses a value that could not be kept exactly.
    pub fn check(&self) -> Result<(), InvalidJson> {
        match self {
            Self::OpenHook { .. } => Ok(()),
            Self::StartChild { input, .. } => input.check(),
        }
    }
}

/// Many starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartCall {
    /// Each with its own answer.
    pub starts: Vec<Start>,
}

/// One answer for each item of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answers<T> {
    /// In the order of the items.
    pub answers: Vec<ItemAnswer<T>>,
}

/// The answer to one item.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ItemAnswer<T> {
    /// It took place.
    Ok(T),
    /// It did not.
    Error(ErrorView),
}

impl<T> From<Result<T, Error>> for ItemAnswer<T> {
    fn from(answer: Result<T, Error>) -> Self {
        match answer {
            Ok(value) => Self::Ok(value),
            Err(error) => Self::Error(ErrorView::of(&error)),
        }
    }
}

impl<T> From<ItemAnswer<T>> for Result<T, Error> {
    fn from(answer: ItemAnswer<T>) -> Self {
        match answer {
            ItemAnswer::Ok(value) => Ok(value),
            ItemAnswer::Error(view) => Err(view.into()),
        }
    }
}

/// A run and how it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Its header.
    pub run: Run,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
}

/// A run is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunCall {
    /// Which.
    pub run: RunId,
    /// The first entry or message to be read, from 1.
    #[serde(default = "first")]
    pub from: u64,
    /// The answer has as many as fit into so many bytes, and at least one if there is one. All if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
}

impl RunCall {
    /// Everything from the first on.
    pub fn all(run: RunId) -> Self {
        Self { run, from: first(), max_bytes: None }
    }
}

/// What a claim found, as it travels: [`Claims`](crate::store::Claims).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimsView {
    /// The runs that the worker may drive now.
    pub runs: Vec<ClaimedView>,
    /// When the next run becomes due for this worker; absent if none is known.
    pub next_due: Option<Time>,
}

/// A claimed run, as it travels.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedView {
    /// Its header.
    pub run: Run,
    /// Its ledger. Absent if the worker has it in memory, and if it is too large to travel along: the worker reads it.
    pub entries: Option<Vec<Entry>>,
    /// Its inbox, or as much of it as travels along.
    pub inbox: Vec<Arrival>,
    /// The number of the first message that did not fit: the worker reads the inbox from there on. Absent if all of them
    /// are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox_from: Option<u64>,
}

fn first() -> u64 {
    1
}

/// The entries of a commit that came over the wire.
pub fn entries(text: &RawValue) -> Result<Vec<Entry>, InvalidJson> {
    let entries = crate::rules::entry::decode(text.get())
        .map_err(|wrong| InvalidJson::Refused(format!("no entries: {wrong}")))?;
    entries.iter().try_for_each(Entry::check)?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_entries_are_checked_like_payloads() {
        let read = |value: &str| {
            let text = format!(r#"[{{"completed":{{"value":{value}}}}}]"#);
            let raw = RawValue::from_string(text).unwrap();
            entries(&raw)
        };
        assert!(read(r#"{"a":[1,2.5,"\u00e9"]}"#).is_ok());
        for bad in
            [r#"{"a":1,"a":2}"#, r#""\u0000""#, "1e400", r#""\ud800""#, &("[".repeat(65) + &"]".repeat(65))]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
