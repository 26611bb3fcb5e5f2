//! The memory store: the reference, and the store of tests and simulations. Nothing survives the process.

mod archive;
mod calls;
mod counts;
mod due;
mod glances;
mod hooks;
mod inbox;
mod ledger;
mod nodes;
mod once;
mod records;
mod runs;
mod stats;
mod sweep;
mod tallies;
mod watchers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use super::archive::OnceAt;
use super::meters::StoreMeters;
use super::receipts::ReceiptBuffer;
use super::serve::Backend;
use super::stats::StatsBuffer;
use super::tx::{InboxRow, LedgerRow, StatsAt, StatsRow, Verb, Watcher};
use super::wakes::Wakes;
use crate::clock::{Clock, Time};
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::deadline::is_limited;
use crate::rules::deliver::PastCall;
use crate::rules::family::Family;
use crate::rules::key::{CallId, Key, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::{Name, Visit};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::Record;
use crate::rules::run::{NewRun, Run};
use crate::store::tx::TxTime;
use uuid::Uuid;

/// A store in memory: for tests, and the reference for the other stores.
#[derive(Clone)]
pub struct MemoryStore(Arc<MemoryShared>);

struct MemoryShared {
    tables: Mutex<MemoryTables>,
    clock: Arc<dyn Clock>,
    buffer: ReceiptBuffer,
    stats: StatsBuffer,
    meters: StoreMeters,
    wakes: Wakes,
}

impl MemoryStore {
    /// Creates an empty store, which reads this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (tables, meters) = (Mutex::default(), StoreMeters::default());
        let (buffer, wakes) = (ReceiptBuffer::default(), Wakes::default());
        let stats = StatsBuffer::new(Uuid::nil());
        Self(Arc::new(MemoryShared { tables, clock, buffer, stats, meters, wakes }))
    }
}

impl Backend for MemoryStore {
    async fn execute<V: Verb>(&self, verb: V) -> Result<V::Answer> {
        let mut tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.now();
        let mut tx = MemoryTx { tables: &mut tables, now, writes: 0 };
        let answer = super::tx::now_or_never(super::tx::run(&verb, &mut tx));
        // There is no rollback here, so this is where every verb is held to deciding before it writes.
        assert!(answer.is_ok() || tx.writes == 0, "a refused verb has written {} times", tx.writes);
        answer
    }

    async fn stop(&self) -> Result<()> {
        Ok(())
    }

    fn wakes(&self) -> &Wakes {
        &self.0.wakes
    }

    fn meters(&self) -> &StoreMeters {
        &self.0.meters
    }

    fn buffer(&self) -> &ReceiptBuffer {
        &self.0.buffer
    }

    fn stats(&self) -> &StatsBuffer {
        &self.0.stats
    }

    fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }
}

#[derive(Default)]
struct MemoryTables {
    runs: BTreeMap<i64, Run>,
    /// Numbers are never given twice: a zombie's commit must not find another run under its own.
    last_num: i64,
    ids: HashMap<RunId, i64>,
    keys: HashMap<(WorkspaceId, Scope, Key), i64>,
    due: BTreeSet<(Drives, Time, i64)>,
    due_by_family: BTreeSet<(Family, Time, i64)>,
    driven: BTreeSet<(NodeId, i64)>,
    purge: BTreeSet<(Time, i64)>,
    /// Of runs that are open and not paused.
    deadlines: BTreeSet<(Time, i64)>,
    children: BTreeSet<(RunId, i64)>,
    /// All runs by the time of their creation, as lists show them.
    listed: BTreeSet<(WorkspaceId, Time, i64)>,
    ledger: HashMap<i64, Vec<LedgerRow>>,
    inbox: HashMap<i64, BTreeMap<u64, InboxRow>>,
    hooks: BTreeMap<(WorkspaceId, Token), HeldToken>,
    watchers: HashMap<i64, Vec<Watcher>>,
    calls: HashMap<(WorkspaceId, String, CallId), (i64, PastCall)>,
    once: HashMap<OnceAt, OnceRow>,
    once_waiters: HashMap<OnceAt, BTreeSet<RunId>>,
    records: BTreeMap<Name, BTreeMap<RecordId, Record>>,
    receipts: BTreeMap<(i64, ReceiptKind), Receipts>,
    stats: BTreeMap<StatsAt, StatsRow>,
    nodes: BTreeMap<NodeId, NodeRow>,
}

/// A token that a run owns.
#[derive(Clone)]
struct HeldToken {
    num: i64,
    /// Where the run has opened it; none if a start has reserved it.
    visit: Option<Visit>,
    opened: Time,
}

/// A node.
#[derive(Clone, Copy, Default)]
struct NodeRow {
    /// Until when it is believed to live; none if it is given up for dead.
    lease: Option<Time>,
    /// Whether it has left in good order.
    departed: bool,
}

impl MemoryTables {
    fn key(run: &Run) -> (WorkspaceId, Scope, Key) {
        (run.new.workspace, run.new.scope.clone(), run.new.key.clone())
    }

    /// The workflow version that a node must serve to drive it.
    fn drives(run: &Run) -> Drives {
        let NewRun { workspace, workflow, workflow_version, .. } = &*run.new;
        Drives {
            workspace: *workspace,
            workflow: workflow.clone(),
            workflow_version: workflow_version.clone(),
        }
    }

    /// Takes a run out of every index.
    fn unindex(&mut self, num: i64) {
        let Some(run) = self.runs.get(&num) else { return };
        if let Some(due) = run.state.due {
            self.due.remove(&(Self::drives(run), due, num));
            if let Some(family) = Family::of(&run.new.workflow_version) {
                self.due_by_family.remove(&(family, due, num));
            }
        }
        if let Some(node) = run.state.node {
            self.driven.remove(&(node, num));
        }
        if let Some(purge) = run.state.purge {
            self.purge.remove(&(purge, num));
        }
        if let Some(deadline) = run.state.deadline {
            self.deadlines.remove(&(deadline, num));
        }
        if run.state.holds_key {
            self.keys.remove(&Self::key(run));
        }
    }

    /// Changes a run and keeps the indexes.
    fn update(&mut self, num: i64, change: impl FnOnce(&mut Run)) {
        self.unindex(num);
        let Some(run) = self.runs.get_mut(&num) else { return };
        change(run);
        self.due.extend(run.state.due.map(|due| (Self::drives(run), due, num)));
        let family = run.state.due.zip(Family::of(&run.new.workflow_version));
        self.due_by_family.extend(family.map(|(due, family)| (family, due, num)));
        self.driven.extend(run.state.node.map(|node| (node, num)));
        self.purge.extend(run.state.purge.map(|purge| (purge, num)));
        let deadline = run.state.deadline.filter(|_| is_limited(run.status()));
        self.deadlines.extend(deadline.map(|deadline| (deadline, num)));
        if run.state.holds_key {
            let held = self.keys.insert(Self::key(run), num);
            assert!(held.is_none(), "two runs hold one key");
        }
    }
}

struct MemoryTx<'a> {
    tables: &'a mut MemoryTables,
    now: Time,
    writes: usize,
}

impl MemoryTx<'_> {
    fn write(&mut self) -> &mut MemoryTables {
        self.writes += 1;
        self.tables
    }
}

impl TxTime for MemoryTx<'_> {
    fn now(&self) -> Time {
        self.now
    }
}
