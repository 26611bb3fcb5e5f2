//! What a store counts and logs: the answers to its calls, whichever engine, route or worker makes them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, counter};

use super::{Started, Swept};
use crate::error::{Error, Result};
use crate::id::NodeId;
use crate::metrics::{
    CLAIMS, COMMITS, DELIVERIES, DUPLICATES, ENDED, ENTRIES, FAILURES, IN_DOUBT, ORPHANED, RETRIES, REUSED,
    STALE, STARTS, STEPS,
};
use crate::rules::commit::{Commit, Saved, Tally};
use crate::rules::control::{ControlAction, Controlled};
use crate::rules::deliver::Delivered;
use crate::rules::entry::Outcome;
use crate::rules::receipt::ReceiptKind;
use crate::rules::run::NewRun;
use crate::rules::start::StartVerdict;
use crate::rules::status::Status;

/// The counters of one store, each looked up once.
pub(crate) struct StoreMeters {
    starts: [Counter; 5],
    ended: [Counter; 4],
    duplicates: [Counter; 4],
    steps: Counter,
    retries: Counter,
    in_doubt: Counter,
    commits: Counter,
    entries: Counter,
    stale: Counter,
    reused: Counter,
    deliveries: Counter,
    claims: Counter,
    orphaned: Counter,
    unavailable: Counter,
    unknown: Counter,
    damaged: Counter,
    /// Refused commits of nodes that had lost their runs.
    stale_of: Mutex<HashMap<NodeId, u64>>,
}

/// Nodes whose refused commits are counted one by one; those of others are only in the sum.
const STALE_NODES: usize = 10_000;

impl StoreMeters {
    /// Counts a commit that came too late.
    pub(crate) fn was_stale(&self, node: Option<NodeId>) {
        let Some(node) = node else { return };
        let mut counts = self.stale_of.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() < STALE_NODES || counts.contains_key(&node) {
            *counts.entry(node).or_default() += 1;
        }
    }

    /// Number of commits of this node that came too late.
    pub(crate) fn stale_of(&self, node: NodeId) -> u64 {
        let counts = self.stale_of.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&node).copied().unwrap_or_default()
    }
}

impl Default for StoreMeters {
    fn default() -> Self {
        let by =
            |name: &'static str, label: &'static str, value: &'static str| counter!(name, label => value);
        Self {
            starts: ["created", "attached", "replayed", "restarted", "superseded"]
                .map(|verdict| by(STARTS, "verdict", verdict)),
            ended: ["completed", "failed", "cancelled", "timed-out"]
                .map(|status| by(ENDED, "status", status)),
            duplicates: ["start", "delivery", "result", "control"].map(|kind| by(DUPLICATES, "kind", kind)),
            steps: counter!(STEPS),
            retries: counter!(RETRIES),
            in_doubt: counter!(IN_DOUBT),
            commits: counter!(COMMITS),
            entries: counter!(ENTRIES),
            stale: counter!(STALE),
            reused: counter!(REUSED),
            deliveries: counter!(DELIVERIES),
            claims: counter!(CLAIMS),
            orphaned: counter!(ORPHANED),
            unavailable: by(FAILURES, "kind", "unavailable"),
            unknown: by(FAILURES, "kind", "unknown"),
            damaged: by(FAILURES, "kind", "damaged"),
            stale_of: Mutex::default(),
        }
    }
}

/// Target of the events of runs. They are at level debug: a busy store has thousands of them per second.
const RUNS: &str = "semel::runs";

/// Numbers for counters and log that are known of a commit before it is sent.
pub(crate) struct CommitFigures {
    pub(super) new: Arc<NewRun>,
    pub(super) tally: Tally,
    entries: u64,
    pub(super) ends: Option<Status>,
}

impl CommitFigures {
    pub(crate) fn of(commit: &Commit) -> Self {
        let ends = commit.outcome().map(status_of);
        Self { new: commit.new.clone(), tally: commit.tally(), entries: commit.count(), ends }
    }
}

/// Name of an operator's action in the log.
fn event(action: &ControlAction) -> &'static str {
    match action {
        ControlAction::Cancel { .. } => "run cancelled",
        ControlAction::RequestCancel { .. } => "cancel requested",
        ControlAction::Pause => "run paused",
        ControlAction::Resume => "run resumed",
        ControlAction::Restart(_) => "run restarted",
        ControlAction::ReleaseKey => "key released",
        ControlAction::Resolve { .. } => "step resolved",
        ControlAction::Fork(_) => "run forked",
    }
}

impl StoreMeters {
    fn duplicate(&self, kind: ReceiptKind) {
        let at = match kind {
            ReceiptKind::Start => 0,
            ReceiptKind::Delivery => 1,
            ReceiptKind::Result => 2,
            ReceiptKind::Control => 3,
            // Refusals are counted by their errors.
            ReceiptKind::Refused => return,
        };
        self.duplicates[at].increment(1);
    }

    pub(crate) fn started(&self, started: &Started) {
        let at = match started.verdict {
            StartVerdict::Created => 0,
            StartVerdict::Attached => 1,
            StartVerdict::Replayed => 2,
            StartVerdict::Restarted => 3,
            StartVerdict::Superseded => 4,
        };
        self.starts[at].increment(1);
        if matches!(started.verdict, StartVerdict::Attached | StartVerdict::Replayed) {
            self.duplicate(ReceiptKind::Start);
        }
        if started.superseded.is_some() {
            self.ended(Status::Cancelled);
        }
        if let Some(delivered) = &started.delivered {
            self.delivered(delivered);
        }
        if started.created() {
            let new = &started.run.new;
            tracing::debug!(target: RUNS, run = %new.id, workflow = %new.workflow, "run started");
        }
    }

    pub(crate) fn committed(&self, saved: &Result<Saved>, figures: &CommitFigures) {
        match saved {
            Ok(_) => {
                self.commits.increment(1);
                self.entries.increment(figures.entries);
                self.steps.increment(figures.tally.steps.into());
                self.retries.increment(figures.tally.retries.into());
                self.in_doubt.increment(figures.tally.in_doubt.into());
                if let Some(status) = figures.ends {
                    self.ended(status);
                    let run = figures.new.id;
                    tracing::debug!(target: RUNS, %run, %status, "run ended");
                }
            }
            Err(Error::Concurrency { .. }) => {
                self.stale.increment(1);
                self.duplicate(ReceiptKind::Result);
            }
            Err(error) => self.failure(error),
        }
    }

    pub(crate) fn delivered(&self, delivered: &Delivered) {
        if delivered.absorbed {
            self.duplicate(ReceiptKind::Delivery);
        } else {
            self.deliveries.increment(1);
        }
    }

    pub(crate) fn controlled(&self, controlled: &Controlled, action: &ControlAction) {
        if !controlled.changed {
            return self.duplicate(ReceiptKind::Control);
        }
        let (run, status) = (controlled.run.id(), controlled.run.status());
        tracing::debug!(target: RUNS, %run, %status, "{}", event(action));
        if matches!(action, ControlAction::Cancel { .. }) {
            self.ended(Status::Cancelled);
        }
    }

    pub(crate) fn claimed(&self, runs: usize) {
        self.claims.increment(runs as u64);
    }

    pub(crate) fn swept(&self, swept: &Swept) {
        self.orphaned.increment(swept.orphaned as u64);
    }

    fn ended(&self, status: Status) {
        match status {
            Status::Completed => self.ended[0].increment(1),
            Status::Failed => self.ended[1].increment(1),
            Status::Cancelled => self.ended[2].increment(1),
            Status::TimedOut => self.ended[3].increment(1),
            Status::Pending | Status::Running | Status::Waiting | Status::Paused => {}
        }
    }

    /// Counts an error, and hands the answer on.
    pub(crate) fn failed<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer {
            self.failure(error);
        }
        answer
    }

    fn failure(&self, error: &Error) {
        match error {
            Error::Unavailable(_) => self.unavailable.increment(1),
            Error::Unknown(_) => self.unknown.increment(1),
            Error::Corrupt { .. } => self.damaged.increment(1),
            Error::KeyReused { .. } | Error::CallReused { .. } => self.reused.increment(1),
            _ => {}
        }
    }
}

fn status_of(outcome: &Outcome) -> Status {
    match outcome {
        Outcome::Completed(_) => Status::Completed,
        Outcome::Failed(_) => Status::Failed,
        Outcome::Cancelled(_) => Status::Cancelled,
        Outcome::TimedOut => Status::TimedOut,
        Outcome::Purged(status) => *status,
    }
}
