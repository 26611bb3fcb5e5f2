//! A run's header: what is known of a run without reading its ledger.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{Fingerprint, Key, Scope};
use super::path::{Name, Visit};
use super::status::Status;
use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};

/// How long a run is remembered after its end: its history, and apart from that its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Ledger, inbox and receipts.
    pub history: Duration,
    /// The key. It may outlive the history; until then a duplicate is still recognised.
    pub key: Duration,
}

impl Retention {
    /// When a run that has just ended first has something to forget.
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

/// The run that started this one, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// The visit that waits for this run's end.
    pub visit: Visit,
}

/// What is fixed when a run is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Its tenant.
    pub workspace: WorkspaceId,
    /// The workflow it executes.
    pub workflow: Name,
    /// The workflow's version.
    pub workflow_version: Name,
    /// Where its key is unique.
    pub scope: Scope,
    /// Its key.
    pub key: Key,
    /// The hash of what was asked.
    pub fingerprint: Fingerprint,
    /// The root of its effects' identities.
    pub lineage: RunId,
    /// Who started it, if a run did.
    pub parent: Option<RunId>,
    /// How long it is remembered.
    pub retention: Retention,
    /// When it was created.
    pub created: Time,
}

/// What changes in a run's header while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Its state.
    pub status: Status,
    /// The length of its ledger: the optimistic lock and the fence.
    pub version: u64,
    /// From when on any node may claim it.
    pub due: Option<Time>,
    /// Who drives it.
    pub node: Option<NodeId>,
    /// How much suspicion there is that it kills its nodes: it grows with each of them that dies before the run has made
    /// progress. See [`claim`](super::claim).
    pub stalls: u32,
    /// When it ended.
    pub ended: Option<Time>,
    /// When the sweep has something to forget of it.
    pub purge: Option<Time>,
    /// When the store looks whether its time is up, while it is open and not paused: at its time limit, or at that of the
    /// try of a remote step. None if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Whether its key still points at it.
    pub holds_key: bool,
    /// Whether rows elsewhere (tokens, watchers, children) change when it ends.
    pub ties: bool,
}

/// A run without its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The store's own short address of it.
    pub num: i64,
    /// What is fixed. Copies share it.
    pub new: Arc<NewRun>,
    /// What changes.
    pub state: State,
    /// How many messages have ever arrived in its inbox.
    pub arrivals: u64,
    /// Whether its history has been forgotten; only the key is still remembered.
    pub purged: bool,
}

impl Run {
    /// Its id.
    pub fn id(&self) -> RunId {
        self.new.id
    }

    /// Its state.
    pub fn status(&self) -> Status {
        self.state.status
    }

    /// Whether nobody drives it and nobody is about to: it is paused, or waits for something else than the next one to drive
    /// it.
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

    /// Whether some rows of its history are left, which nobody can read any more: the sweep comes back for them before the
    /// time of the key.
    pub(crate) fn is_half_forgotten(&self) -> bool {
        let comes_back = self.state.ended.map(|ended| self.next_purge(ended));
        self.purged && self.state.purge < comes_back
    }

    /// When the sweep next has something to forget: first the history, then the key.
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
            state: State {
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
