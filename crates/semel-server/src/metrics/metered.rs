//! A store that counts what passes.

use std::sync::Arc;

use metrics::{Counter, counter};
use semel::Error;
use semel::clock::Time;
use semel::error::Result;
use semel::id::{RunId, WorkspaceId};
use semel::rules::claim::{Claim, Drives};
use semel::rules::commit::{Commit, Saved};
use semel::rules::control::{Action, Control, Controlled};
use semel::rules::deliver::{Deliver, Delivered};
use semel::rules::entry::Outcome;
use semel::rules::once::{Once, OnceAnswer};
use semel::rules::receipt::{ReceiptKind, Receipts};
use semel::rules::record::{Keep, Look, Record};
use semel::rules::run::Run;
use semel::rules::start::{Start, Verdict};
use semel::rules::status::Status;
use semel::store::{
    Answer, Archive, Arrival, Claims, Find, Lease, LedgerPart, Numbered, Page, Part, Query, Started, Store,
    Sweep, Swept, Wake, Watch,
};
use tokio::sync::broadcast;

use super::{
    CLAIMS, COMMITS, DELIVERIES, DUPLICATES, ENDED, ENTRIES, FAILURES, IN_DOUBT, ORPHANED, REUSED, STALE,
    STARTS, STEPS,
};

/// A store that counts what passes, whoever calls: routes, workers, the engine.
pub struct Metered {
    store: Arc<dyn Store>,
    meters: Meters,
}

impl Metered {
    /// Counts what passes to this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, meters: Meters::new() }
    }
}

/// The counters, each looked up once.
struct Meters {
    starts: [Counter; 5],
    ended: [Counter; 4],
    duplicates: [Counter; 4],
    steps: Counter,
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
}

impl Meters {
    fn new() -> Self {
        let by =
            |name: &'static str, label: &'static str, value: &'static str| counter!(name, label => value);
        Self {
            starts: ["created", "attached", "replayed", "restarted", "superseded"]
                .map(|verdict| by(STARTS, "verdict", verdict)),
            ended: ["completed", "failed", "cancelled", "timed-out"]
                .map(|status| by(ENDED, "status", status)),
            duplicates: ["start", "delivery", "result", "control"].map(|kind| by(DUPLICATES, "kind", kind)),
            steps: counter!(STEPS),
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
        }
    }

    fn duplicate(&self, kind: ReceiptKind) {
        let at = match kind {
            ReceiptKind::Start => 0,
            ReceiptKind::Delivery => 1,
            ReceiptKind::Result => 2,
            ReceiptKind::Control => 3,
        };
        self.duplicates[at].increment(1);
    }

    fn started(&self, started: &Started) {
        let at = match started.verdict {
            Verdict::Created => 0,
            Verdict::Attached => 1,
            Verdict::Replayed => 2,
            Verdict::Restarted => 3,
            Verdict::Superseded => 4,
        };
        self.starts[at].increment(1);
        if matches!(started.verdict, Verdict::Attached | Verdict::Replayed) {
            self.duplicate(ReceiptKind::Start);
        }
        if started.superseded.is_some() {
            self.ended(Status::Cancelled);
        }
        if let Some(delivered) = &started.delivered {
            self.delivered(delivered);
        }
    }

    fn delivered(&self, delivered: &Delivered) {
        if delivered.absorbed {
            self.duplicate(ReceiptKind::Delivery);
        } else {
            self.deliveries.increment(1);
        }
    }

    fn controlled(&self, controlled: &Controlled, cancels: bool) {
        if !controlled.changed {
            self.duplicate(ReceiptKind::Control);
        } else if cancels {
            self.ended(Status::Cancelled);
        }
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

    /// Counts an error, and hands it on.
    fn failed<T>(&self, answer: Result<T>) -> Result<T> {
        match &answer {
            Err(Error::Unavailable(_)) => self.unavailable.increment(1),
            Err(Error::Unknown(_)) => self.unknown.increment(1),
            Err(Error::Corrupt { .. }) => self.damaged.increment(1),
            Err(Error::KeyReused { .. } | Error::CallReused { .. }) => self.reused.increment(1),
            _ => {}
        }
        answer
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

impl Store for Metered {
    fn start(&self, start: Start) -> Answer<'_, Started> {
        Box::pin(async move {
            let started = self.meters.failed(self.store.start(start).await)?;
            self.meters.started(&started);
            Ok(started)
        })
    }

    fn dues(&self, workflows: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(async move { self.meters.failed(self.store.dues(workflows).await) })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        Box::pin(async move {
            let claims = self.meters.failed(self.store.claim(claim).await)?;
            self.meters.claims.increment(claims.runs.len() as u64);
            Ok(claims)
        })
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        let (tally, count, ends) = (commit.tally(), commit.count(), commit.outcome().map(status_of));
        let saving = self.store.commit(commit);
        Box::pin(async move {
            let meters = &self.meters;
            let saved = meters.failed(saving.await);
            match &saved {
                Ok(_) => {
                    meters.commits.increment(1);
                    meters.entries.increment(count);
                    meters.steps.increment(tally.steps.into());
                    meters.in_doubt.increment(tally.in_doubt.into());
                    if let Some(status) = ends {
                        meters.ended(status);
                    }
                }
                Err(Error::Concurrency { .. }) => {
                    meters.stale.increment(1);
                    meters.duplicate(ReceiptKind::Result);
                }
                Err(_) => {}
            }
            saved
        })
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        Box::pin(async move {
            let delivered = self.meters.failed(self.store.deliver(deliver).await)?;
            self.meters.delivered(&delivered);
            Ok(delivered)
        })
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        Box::pin(async move {
            let cancels = matches!(control.action, Action::Cancel { .. });
            let controlled = self.meters.failed(self.store.control(control).await)?;
            self.meters.controlled(&controlled, cancels);
            Ok(controlled)
        })
    }

    fn once(&self, once: Once) -> Answer<'_, OnceAnswer> {
        Box::pin(async move { self.meters.failed(self.store.once(once).await) })
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        Box::pin(async move { self.meters.failed(self.store.lease(lease).await) })
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        Box::pin(async move { self.meters.failed(self.store.keep(keep).await) })
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        Box::pin(async move {
            let swept = self.meters.failed(self.store.sweep(sweep).await)?;
            self.meters.orphaned.increment(swept.orphaned as u64);
            Ok(swept)
        })
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        Box::pin(async move { self.meters.failed(self.store.find(find).await) })
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        Box::pin(async move { self.meters.failed(self.store.list(query).await) })
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        Box::pin(async move { self.meters.failed(self.store.ledger(workspace, run, from).await) })
    }

    fn ledger_part(&self, part: Part) -> Answer<'_, LedgerPart> {
        Box::pin(async move { self.meters.failed(self.store.ledger_part(part).await) })
    }

    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        Box::pin(async move { self.meters.failed(self.store.inbox(workspace, run, from).await) })
    }

    fn unconsumed(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, u64> {
        Box::pin(async move { self.meters.failed(self.store.unconsumed(workspace, run).await) })
    }

    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        Box::pin(async move { self.meters.failed(self.store.receipts(workspace, run).await) })
    }

    fn records(&self, look: Look) -> Answer<'_, Vec<Record>> {
        Box::pin(async move { self.meters.failed(self.store.records(look).await) })
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.store.wakes()
    }

    fn archive(&self) -> Option<&dyn Archive> {
        self.store.archive()
    }

    fn watch(&self, run: RunId) -> Watch {
        self.store.watch(run)
    }

    fn close(&self) -> Answer<'_, ()> {
        self.store.close()
    }
}
