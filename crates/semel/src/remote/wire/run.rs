//! Runs as they travel: headers, pages of them, entries and messages with their numbers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::control::Controlled;
use crate::rules::entry::{Entry, Message, Outcome};
use crate::rules::key::{Fingerprint, Key, Scope};
use crate::rules::path::Name;
use crate::rules::run::{NewRun, Retention, Run, RunState};
use crate::rules::status::Status;
use crate::store::{Arrival, Numbered, Page};

/// A run's header, without its ledger.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Run))]
#[serde(rename_all = "camelCase")]
pub struct RunHeader {
    /// Number of the run as this workspace sees it, used as a short address.
    pub num: i64,
    /// The part that never changes.
    pub new: NewRunHeader,
    /// The part that changes with commits.
    pub state: RunStateHeader,
    /// How many messages have ever arrived in its inbox.
    pub arrivals: u64,
    /// Whether its history has been forgotten, so that only the key is still remembered.
    pub purged: bool,
}

/// The part of a run's header that never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = NewRun))]
#[serde(rename_all = "camelCase")]
pub struct NewRunHeader {
    /// Id of the run.
    pub id: RunId,
    /// Workspace of the run.
    pub workspace: WorkspaceId,
    /// The workflow it executes.
    pub workflow: Name,
    /// Version of that workflow.
    pub workflow_version: Name,
    /// Scope in which its key is unique.
    pub scope: Scope,
    /// Idempotency key of the run.
    pub key: Key,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Run id that goes into its effect keys.
    pub lineage: RunId,
    /// The run that started it; none if no run did.
    pub parent: Option<RunId>,
    /// How long it is remembered after its end.
    pub retention: Retention,
    /// Time of its creation.
    pub created: Time,
}

/// The part of a run's header that changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunState))]
#[serde(rename_all = "camelCase")]
pub struct RunStateHeader {
    /// Status of the run.
    pub status: Status,
    /// The length of its ledger: the optimistic lock and the fence.
    pub version: u64,
    /// Time from which any node may claim it; none if it is not claimable.
    pub due: Option<Time>,
    /// The node that drives it; none if no node does.
    pub node: Option<NodeId>,
    /// Suspicion that the run kills its nodes: grows with each node that dies before the run has made progress.
    pub stalls: u32,
    /// Time of its end; none while it is open.
    pub ended: Option<Time>,
    /// Time at which the sweep has something to forget of it; none while it is open.
    pub purge: Option<Time>,
    /// Time at which the store checks whether its time is up, while it is open and not paused: its time limit, or
    /// that of an attempt at a remote step. Absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Whether its key still points to it.
    pub holds_key: bool,
    /// Whether rows elsewhere (tokens, watchers, children) change when it ends.
    pub ties: bool,
    /// Why it is paused. Absent if it is not paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<Attention>,
}

/// A run and how it ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FoundRun {
    /// Header of the run.
    pub run: RunHeader,
    /// How it ended, if it has.
    pub outcome: Option<Outcome>,
}

/// A page of runs, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunPage {
    /// The runs of this page.
    pub runs: Vec<RunHeader>,
    /// The run after which the next page begins: `before` of the next question. Absent if this page is the last.
    pub next: Option<RunId>,
    /// Whether the bound on the runs to read was reached before the page was full. The next page may hold more.
    pub partial: bool,
}

/// Result of an operator action.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Controlled))]
#[serde(rename_all = "camelCase")]
pub struct ControlledRun {
    /// The run after the action; for a fork, the new run.
    pub run: RunHeader,
    /// Whether this call changed the run. A cancel that came too late did not: the run's status says how it ended.
    pub changed: bool,
    /// Whether the call had been made before under its id, so that this is the answer to the first one.
    pub repeated: bool,
}

/// An entry with its number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Numbered))]
#[serde(rename_all = "camelCase")]
pub struct NumberedEntry {
    /// Its place in the ledger, from 1: the version it made.
    pub number: u64,
    /// When it was committed.
    pub at: Time,
    /// The entry, as it was committed.
    pub entry: Entry,
}

/// A message with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Arrival))]
#[serde(rename_all = "camelCase")]
pub struct ArrivedMessage {
    /// Its number in the run's inbox, from 1.
    pub number: u64,
    /// Time at which it was accepted.
    pub at: Time,
    /// What arrived: a payload, or the result of a child.
    pub message: Message,
}

impl From<Run> for RunHeader {
    fn from(run: Run) -> Self {
        let Run { num, new, state, arrivals, purged } = run;
        Self { num, new: Arc::unwrap_or_clone(new).into(), state: state.into(), arrivals, purged }
    }
}

impl From<RunHeader> for Run {
    fn from(run: RunHeader) -> Self {
        let RunHeader { num, new, state, arrivals, purged } = run;
        Self { num, new: Arc::new(new.into()), state: state.into(), arrivals, purged }
    }
}

same_members! {
    NewRun = NewRunHeader {
        id, workspace, workflow, workflow_version, scope, key, fingerprint, lineage, parent, retention, created
    }
    RunState = RunStateHeader { status, version, due, node, stalls, ended, purge, deadline, holds_key, ties, attention }
    Controlled = ControlledRun { run, changed, repeated }
    Numbered = NumberedEntry { number, at, entry }
    Arrival = ArrivedMessage { number, at, message }
}

impl From<Page> for RunPage {
    fn from(page: Page) -> Self {
        let Page { runs, next, partial } = page;
        Self { runs: runs.into_iter().map(Into::into).collect(), next, partial }
    }
}

impl From<RunPage> for Page {
    fn from(page: RunPage) -> Self {
        let RunPage { runs, next, partial } = page;
        Self { runs: runs.into_iter().map(Into::into).collect(), next, partial }
    }
}
