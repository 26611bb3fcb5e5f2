//! A run's header: what is known of a run without reading its ledger.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::attention::Attention;
use super::key::{Fingerprint, Key, Scope};
use super::millis;
use super::path::{Name, Visit};
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};

/// How long a run is remembered after its end: its history, and separately its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RunRetention))]
pub struct Retention {
    /// For the ledger, inbox and receipts.
    #[serde(rename = "historyMs", alias = "history", with = "millis")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub history: Duration,
    /// For the key. It may outlive the history; a duplicate is recognised for as long.
    #[serde(rename = "keyMs", alias = "key", with = "millis")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub key: Duration,
}

impl Retention {
    /// Time at which a run that has just ended first has something to forget.
    pub(crate) fn first_purge(self, ended: Time) -> Time {
        ended.after(self.history)
    }
}

impl Default for Retention {
    /// 90 days for both.
    fn default() -> Self {
        const DAYS_90: Duration = Duration::from_hours(90 * 24);
        Self { history: DAYS_90, key: DAYS_90 }
    }
}

/// The run that started this one, and the visit that waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Parent {
    /// Id of the parent run.
    pub run: RunId,
    /// The visit that waits for this run's end.
    pub visit: Visit,
}

/// The part of a run's header that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Id of the run, unique in the store.
    pub id: RunId,
    /// Workspace to which the run belongs.
    pub workspace: WorkspaceId,
    /// Name of the workflow that it executes.
    pub workflow: Name,
    /// Version of the workflow that it executes.
    pub workflow_version: Name,
    /// Scope in which its key is unique.
    pub scope: Scope,
    /// Idempotency key of the run.
    pub key: Key,
    /// Fingerprint of workflow and input. A start with the same key and another fingerprint is refused.
    pub fingerprint: Fingerprint,
    /// Run id that goes into its effect keys.
    pub lineage: RunId,
    /// The run that started it; none if no run did.
    pub parent: Option<RunId>,
    /// How long it is remembered after its end.
    pub retention: Retention,
    /// Time at which the run was created.
    pub created: Time,
}

/// The part of a run's header that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunState {
    /// Status of the run now.
    pub status: Status,
    /// The length of its ledger: the optimistic lock and the fence.
    pub version: u64,
    /// Time from which any node may claim it; none if it is not claimable.
    pub due: Option<Time>,
    /// The node that drives it; none if no node does.
    pub node: Option<NodeId>,
    /// Suspicion that the run kills its nodes: grows with each node that dies before the run has made progress. See
    /// [`claim`](super::claim).
    pub stalls: u32,
    /// Time of its end; none while it is open.
    pub ended: Option<Time>,
    /// Time at which the sweep has something to forget of it; none while it is open.
    pub purge: Option<Time>,
    /// Time at which the store checks whether its time is up, while it is open and not paused: its time limit, or
    /// that of an attempt at a remote step. None if there is no limit.
    pub deadline: Option<Time>,
    /// Whether its key still points to it.
    pub holds_key: bool,
    /// Whether rows elsewhere (tokens, watchers, children) change when it ends.
    pub ties: bool,
    /// Why it is paused; none if it is not paused.
    pub attention: Option<Attention>,
}

/// A run's header, without its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the run in its store, used as a short address.
    pub num: i64,
    /// The part that never changes; copies share it.
    pub new: Arc<NewRun>,
    /// The part that changes with commits.
    pub state: RunState,
    /// How many messages have ever arrived in its inbox.
    pub arrivals: u64,
    /// Whether its history has been forgotten, so that only the key is still remembered.
    pub purged: bool,
}

impl Run {
    /// Id of the run, unique in the store.
    pub fn id(&self) -> RunId {
        self.new.id
    }

    /// Status of the run when this header was read.
    pub fn status(&self) -> Status {
        self.state.status
    }

    /// Whether no node drives the run or is about to: it is paused, or waits for something other than its next
    /// driver.
    pub(crate) fn rests(&self, now: Time) -> bool {
        match self.status() {
            Status::Paused => true,
            Status::Waiting => self.state.due.is_none_or(|due| due > now),
            _ => false,
        }
    }

    /// Whether its key is no longer remembered. A key never expires while its run is open.
    pub fn key_expired(&self, now: Time) -> bool {
        self.state.ended.is_some_and(|ended| ended.after(self.new.retention.key) <= now)
    }

    /// Whether some rows of its history are left, though they can no longer be read: the sweep returns for them
    /// before the key expires.
    pub(crate) fn is_half_forgotten(&self) -> bool {
        let comes_back = self.state.ended.map(|ended| self.next_purge(ended));
        self.purged && self.state.purge < comes_back
    }

    /// Time at which the sweep next has something to forget: first the history, then the key.
    pub fn next_purge(&self, ended: Time) -> Time {
        let Retention { history, key } = self.new.retention;
        if self.purged { ended.after(history.max(key)) } else { self.new.retention.first_purge(ended) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use uuid::Uuid;

    /// A run in some state, for the tables of the other rules.
    pub(crate) fn run(status: Status) -> Run {
        let name = Name::new("order").unwrap();
        let ended = status.is_terminal().then_some(Time(1_000));
        Run {
            num: 1,
            new: Arc::new(NewRun {
                id: RunId(Uuid::from_u128(1)),
                workspace: WorkspaceId::DEFAULT,
                workflow: name.clone(),
                workflow_version: name,
                scope: Scope::children(),
                key: Key::new("k").unwrap(),
                fingerprint: Fingerprint([0; 32]),
                lineage: RunId(Uuid::from_u128(1)),
                parent: None,
                retention: Retention::default(),
                created: Time(0),
            }),
            state: RunState {
                status,
                version: 1,
                due: None,
                node: None,
                stalls: 0,
                ended,
                purge: None,
                deadline: None,
                holds_key: true,
                ties: false,
                attention: None,
            },
            arrivals: 0,
            purged: false,
        }
    }

    #[test]
    fn a_key_expires_after_the_end_only() {
        let far = Time(0).after(Duration::from_hours(1_000 * 24));
        assert!(!run(Status::Paused).key_expired(far));
        assert!(run(Status::Completed).key_expired(far));
        let mut forever = run(Status::Completed);
        Arc::make_mut(&mut forever.new).retention.key = Duration::MAX;
        assert!(!forever.key_expired(far));
    }

    #[test]
    fn history_goes_first_and_the_key_by_its_own_time() {
        let mut run = run(Status::Completed);
        Arc::make_mut(&mut run.new).retention =
            Retention { history: Duration::from_millis(5), key: Duration::from_millis(9) };
        assert_eq!(run.next_purge(Time(100)), Time(105));
        run.purged = true;
        assert_eq!(run.next_purge(Time(100)), Time(109));
    }
}
