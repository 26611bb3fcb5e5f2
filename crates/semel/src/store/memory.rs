//! The memory store: the reference, and the store of tests and simulations. Nothing survives the process.

mod archive;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use super::Query;
use super::archive::OnceAt;
use super::list::{Index, Scan, Scanned};
use super::receipts::ReceiptBuffer;
use super::serve::Backend;
use super::tx::{CallAt, DeadNode, Driven, HeldOnce, InboxRow, LedgerRow, SetFree, Tx, Verb, Watcher};
use super::wakes::Wakes;
use crate::clock::{Clock, Time};
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Drives;
use crate::rules::deadline::is_limited;
use crate::rules::deliver::{PastCall, Unconsumed};
use crate::rules::entry::Message;
use crate::rules::key::{CallId, Key, Label, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::Name;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Look, LookBy, Record};
use crate::rules::run::{NewRun, Run, State};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};

/// A store in memory.
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    tables: Mutex<Tables>,
    clock: Arc<dyn Clock>,
    buffer: ReceiptBuffer,
    wakes: Wakes,
}

impl MemoryStore {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (tables, buffer, wakes) = <(Mutex<Tables>, ReceiptBuffer, Wakes)>::default();
        Self(Arc::new(Inner { tables, clock, buffer, wakes }))
    }
}

impl Backend for MemoryStore {
    async fn execute<V: Verb>(&self, verb: V) -> Result<V::Answer> {
        let mut tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.now();
        let mut tx = MemoryTx { tables: &mut tables, now, writes: 0 };
        let answer = super::tx::now_or_never(verb.run(&mut tx));
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

    fn buffer(&self) -> &ReceiptBuffer {
        &self.0.buffer
    }

    fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }
}

#[derive(Default)]
struct Tables {
    runs: BTreeMap<i64, Run>,
    /// Numbers are never given twice: a zombie's commit must not find another run under its own.
    last_num: i64,
    ids: HashMap<RunId, i64>,
    keys: HashMap<(WorkspaceId, Scope, Key), i64>,
    due: BTreeSet<(Drives, Time, i64)>,
    driven: BTreeSet<(NodeId, i64)>,
    purge: BTreeSet<(Time, i64)>,
    /// Of runs that are open and not paused.
    deadlines: BTreeSet<(Time, i64)>,
    children: BTreeSet<(RunId, i64)>,
    /// All runs by the time of their creation, as lists show them.
    listed: BTreeSet<(WorkspaceId, Time, i64)>,
    ledger: HashMap<i64, Vec<LedgerRow>>,
    inbox: HashMap<i64, BTreeMap<u64, InboxRow>>,
    hooks: BTreeMap<(WorkspaceId, Token), i64>,
    watchers: HashMap<i64, Vec<Watcher>>,
    calls: HashMap<(WorkspaceId, String, CallId), (i64, PastCall)>,
    once: HashMap<OnceAt, OnceRow>,
    once_waiters: HashMap<OnceAt, BTreeSet<RunId>>,
    records: BTreeMap<Name, BTreeMap<RecordId, Record>>,
    receipts: BTreeMap<(i64, ReceiptKind), Receipts>,
    nodes: BTreeMap<NodeId, Node>,
}

/// A node.
#[derive(Clone, Copy, Default)]
struct Node {
    /// Until when it is believed to live; none if it is given up for dead.
    lease: Option<Time>,
    /// Whether it has left in good order.
    departed: bool,
}

impl Tables {
    fn key(run: &Run) -> (WorkspaceId, Scope, Key) {
        (run.new.workspace, run.new.scope.clone(), run.new.key.clone())
    }

    /// What somebody must have to drive it.
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
        self.driven.extend(run.state.node.map(|node| (node, num)));
        self.purge.extend(run.state.purge.map(|purge| (purge, num)));
        let deadline = run.state.deadline.filter(|_| is_limited(run.status()));
        self.deadlines.extend(deadline.map(|deadline| (deadline, num)));
        if run.state.holds_key {
            let held = self.keys.insert(Self::key(run), num);
            assert!(held.is_none() || sabotage::commits(Bug::ReadThenInsert), "two runs hold one key");
        }
    }
}

struct MemoryTx<'a> {
    tables: &'a mut Tables,
    now: Time,
    writes: usize,
}

impl MemoryTx<'_> {
    fn write(&mut self) -> &mut Tables {
        self.writes += 1;
        self.tables
    }
}

impl Tx for MemoryTx<'_> {
    fn now(&self) -> Time {
        self.now
    }

    async fn insert_run(&mut self, new: &NewRun, state: &State, text: &str) -> Result<Option<i64>> {
        let run = Run { num: 0, new: new.clone().into(), state: state.clone(), arrivals: 0, purged: false };
        let key_taken = self.tables.keys.contains_key(&Tables::key(&run));
        if (key_taken && !sabotage::commits(Bug::ReadThenInsert)) || self.tables.ids.contains_key(&new.id) {
            return Ok(None);
        }
        let tables = self.write();
        tables.last_num += 1;
        let num = tables.last_num;
        tables.ids.insert(new.id, num);
        tables.children.extend(new.parent.map(|parent| (parent, num)));
        tables.listed.insert((new.workspace, new.created, num));
        let bare = State { due: None, node: None, purge: None, holds_key: false, ..state.clone() };
        tables.runs.insert(num, Run { num, state: bare, ..run });
        tables.update(num, |run| run.state = state.clone());
        self.append(num, 0, text).await?;
        Ok(Some(num))
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        let num = self.tables.keys.get(&(workspace, scope.clone(), key.clone()));
        Ok(num.map(|num| self.tables.runs[num].clone()))
    }

    async fn run(&mut self, id: RunId) -> Result<Option<Run>> {
        Ok(self.tables.ids.get(&id).map(|num| self.tables.runs[num].clone()))
    }

    async fn run_at(&mut self, num: i64) -> Result<Option<Run>> {
        Ok(self.tables.runs.get(&num).cloned())
    }

    async fn status(&mut self, id: RunId) -> Result<Option<Status>> {
        Ok(self.run(id).await?.map(|run| run.status()))
    }

    async fn save(&mut self, num: i64, expected: u64, state: &State) -> Result<bool> {
        if self.tables.runs.get(&num).is_none_or(|run| run.state.version != expected) {
            return Ok(false);
        }
        self.write().update(num, |run| run.state = state.clone());
        Ok(true)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        let running = |run: &Run| run.state.version == expected && run.status() == Status::Running;
        if !self.tables.runs.get(&num).is_some_and(running) {
            return Ok(false);
        }
        let run = self.write().runs.get_mut(&num).expect("just seen");
        run.state.version += count;
        run.state.stalls = 0;
        self.append(num, expected, text).await?;
        Ok(true)
    }

    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let mut found = Vec::new();
        for drives in workflows {
            let (from, to) = ((drives.clone(), Time(i64::MIN), 0), (drives.clone(), self.now, i64::MAX));
            found.extend(self.tables.due.range(from..=to).take(limit).map(|(_, due, num)| (*due, *num)));
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.iter().take(limit).map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        let first = |drives: &Drives| {
            let later = (Bound::Excluded((drives.clone(), after, i64::MAX)), Bound::Unbounded);
            let next = self.tables.due.range(later).next();
            next.filter(|(of, ..)| of == drives).map(|(_, due, _)| *due)
        };
        Ok(workflows.iter().map(first).collect())
    }

    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        let nums = self.tables.children.range((parent, 0)..=(parent, i64::MAX)).map(|(_, num)| num);
        let runs = nums.filter_map(|num| self.tables.runs.get(num));
        Ok(runs.filter(|run| !run.status().is_terminal()).cloned().collect())
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        let Query { workspace, since, .. } = scan.query;
        let oldest = (*workspace, since.unwrap_or(Time(i64::MIN)), i64::MIN);
        let (created, num) = scan.before.unwrap_or((Time(i64::MAX), i64::MAX));
        let newest = (*workspace, created, num);
        if oldest >= newest {
            return Ok(Scanned::default());
        }
        let runs = self.tables.listed.range(oldest..newest).rev().map(|(.., num)| &self.tables.runs[num]);
        let stands_there = |run: &&Run| match scan.index {
            Index::Workspace => true,
            Index::Workflow(workflow) => run.new.workflow == *workflow,
            Index::Status(status) => run.status() == status,
        };
        scan.read(runs.filter(stands_there).cloned().map(Ok))
    }

    async fn append(&mut self, num: i64, seq: u64, text: &str) -> Result<()> {
        let row = LedgerRow { num, seq, at: self.now, text: text.to_owned() };
        self.write().ledger.entry(num).or_default().push(row);
        Ok(())
    }

    async fn ledgers(&mut self, nums: &[i64], from: u64) -> Result<Vec<LedgerRow>> {
        let mut rows = Vec::new();
        for num in nums {
            let all = self.tables.ledger.get(num).map_or(&[][..], Vec::as_slice);
            // Entry number `from` stands in the last commit with fewer entries before it.
            let first = all.partition_point(|row| row.seq < from).saturating_sub(1);
            rows.extend_from_slice(&all[first..]);
        }
        Ok(rows)
    }

    async fn ledger_part(
        &mut self,
        num: i64,
        from: u64,
        limit: usize,
        bytes: usize,
    ) -> Result<Option<Vec<LedgerRow>>> {
        let all = self.ledgers(&[num], from).await?;
        let mut read = 0;
        let fits = |row: &LedgerRow| {
            let before = read;
            read += row.text.len();
            before < bytes.max(1)
        };
        Ok(Some(all.into_iter().take(limit).take_while(fits).collect()))
    }

    async fn ledger_first(&mut self, num: i64) -> Result<Option<LedgerRow>> {
        Ok(self.tables.ledger.get(&num).and_then(|rows| rows.first()).cloned())
    }

    async fn ledger_tail(&mut self, num: i64, limit: usize) -> Result<Vec<LedgerRow>> {
        let all = self.tables.ledger.get(&num).map_or(&[][..], Vec::as_slice);
        Ok(all.iter().rev().take(limit).cloned().collect())
    }

    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let Some(run) = self.tables.runs.get(&num).filter(|run| !run.status().is_terminal()) else {
            return Ok(None);
        };
        let (now, arrival, waits) = (self.now, run.arrivals + 1, run.status() == Status::Waiting);
        let tables = self.write();
        tables.update(num, |run| {
            run.arrivals = arrival;
            if waits {
                run.state.due = Some(run.state.due.map_or(now, |due| due.min(now)));
            }
        });
        let row = InboxRow { num, arrival, at: now, text: super::tx::message_text(message) };
        tables.inbox.entry(num).or_default().insert(arrival, row);
        Ok(Some(arrival))
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64) -> Result<Vec<InboxRow>> {
        let boxes = nums.iter().filter_map(|num| self.tables.inbox.get(num));
        Ok(boxes.flat_map(|inbox| inbox.range(from..).map(|(_, row)| row)).cloned().collect())
    }

    async fn unconsumed(&mut self, num: i64) -> Result<Unconsumed> {
        let rows = self.tables.inbox.get(&num).into_iter().flat_map(BTreeMap::values);
        Ok(rows.fold(Unconsumed::default(), |all, row| Unconsumed {
            count: all.count + 1,
            bytes: all.bytes + row.text.len() as u64,
        }))
    }

    async fn arrived(&mut self, num: i64, arrivals: &[u64]) -> Result<Vec<u64>> {
        let inbox = self.tables.inbox.get(&num);
        let there = |arrival: &&u64| inbox.is_some_and(|inbox| inbox.contains_key(arrival));
        Ok(arrivals.iter().filter(there).copied().collect())
    }

    async fn consume(&mut self, num: i64, arrival: u64) -> Result<bool> {
        if !self.tables.inbox.get(&num).is_some_and(|inbox| inbox.contains_key(&arrival)) {
            return Ok(false);
        }
        self.write().inbox.entry(num).or_default().remove(&arrival);
        Ok(true)
    }

    async fn insert_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<bool> {
        let at = (workspace, token.clone());
        if self.tables.hooks.contains_key(&at) {
            return Ok(false);
        }
        self.write().hooks.insert(at, num);
        Ok(true)
    }

    async fn hook_owner(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<RunId>> {
        Ok(self.hook(workspace, token).await?.map(|run| run.id()))
    }

    async fn hook(&mut self, workspace: WorkspaceId, token: &Token) -> Result<Option<Run>> {
        let num = self.tables.hooks.get(&(workspace, token.clone()));
        Ok(num.map(|num| self.tables.runs[num].clone()))
    }

    async fn delete_hook(&mut self, workspace: WorkspaceId, token: &Token, num: i64) -> Result<()> {
        let at = (workspace, token.clone());
        if self.tables.hooks.get(&at) == Some(&num) {
            self.write().hooks.remove(&at);
        }
        Ok(())
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        self.write().hooks.retain(|_, owner| *owner != num);
        Ok(())
    }

    async fn insert_watcher(&mut self, num: i64, watcher: &Watcher) -> Result<()> {
        self.write().watchers.entry(num).or_default().push(watcher.clone());
        Ok(())
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        Ok(self.write().watchers.remove(&num).unwrap_or_default())
    }

    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        Ok(self.tables.calls.get(&(workspace, scope.to_owned(), id.clone())).map(|(_, call)| call.clone()))
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        let at = (at.workspace, at.scope.to_owned(), at.id.clone());
        if self.tables.calls.get(&at).is_some_and(|(_, taken)| Some(taken.run) != replaces) {
            return Ok(false);
        }
        self.write().calls.insert(at, (num, call.clone()));
        Ok(true)
    }

    async fn once(&mut self, workspace: WorkspaceId, scope: &str, label: &Label) -> Result<Option<OnceRow>> {
        Ok(self.tables.once.get(&(workspace, scope.to_owned(), label.clone())).cloned())
    }

    async fn put_once(
        &mut self,
        workspace: WorkspaceId,
        scope: &str,
        label: &Label,
        row: Option<&OnceRow>,
    ) -> Result<()> {
        let at = (workspace, scope.to_owned(), label.clone());
        match row {
            Some(row) => drop(self.write().once.insert(at, row.clone())),
            None => drop(self.write().once.remove(&at)),
        }
        Ok(())
    }

    async fn insert_once_waiter(&mut self, at: &OnceAt, run: RunId) -> Result<()> {
        self.write().once_waiters.entry(at.clone()).or_default().insert(run);
        Ok(())
    }

    async fn once_waiters(&mut self, at: &OnceAt) -> Result<Vec<RunId>> {
        Ok(self.tables.once_waiters.get(at).into_iter().flatten().copied().collect())
    }

    async fn delete_once_waiters(&mut self, at: &OnceAt) -> Result<()> {
        self.write().once_waiters.remove(at);
        Ok(())
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        let held = self.tables.once.iter().filter(|(_, row)| row.owner == owner && row.value.is_none());
        let mut held: Vec<_> = held
            .map(|((workspace, scope, label), row)| HeldOnce {
                workspace: *workspace,
                scope: scope.clone(),
                label: label.clone(),
                row: row.clone(),
            })
            .collect();
        held.sort_by(|a, b| (&a.scope, &a.label).cmp(&(&b.scope, &b.label)));
        Ok(held)
    }

    async fn delete_expired_once(&mut self, limit: usize) -> Result<usize> {
        let expired = self.tables.once.iter().filter(|(_, row)| row.expires.is_some_and(|at| at <= self.now));
        let expired: Vec<_> = expired.map(|(at, _)| at.clone()).take(limit).collect();
        for at in &expired {
            self.write().once.remove(at);
        }
        Ok(expired.len())
    }

    async fn record(&mut self, kind: &Name, id: &RecordId) -> Result<Option<Record>> {
        Ok(self.tables.records.get(kind).and_then(|records| records.get(id)).cloned())
    }

    async fn put_record(&mut self, record: &Record, replaces: Option<u64>) -> Result<bool> {
        let there = self.record(&record.kind, &record.id).await?.map(|there| there.version);
        if there != replaces {
            return Ok(false);
        }
        let records = self.write().records.entry(record.kind.clone()).or_default();
        records.insert(record.id.clone(), record.clone());
        Ok(true)
    }

    async fn records(&mut self, look: &Look) -> Result<Vec<Record>> {
        let Some(records) = self.tables.records.get(&look.kind) else { return Ok(Vec::new()) };
        let now = self.now;
        let there = records.values().filter(|record| record.expires.is_none_or(|at| at > now)).cloned();
        Ok(match &look.by {
            LookBy::Id(id) => there.filter(|record| record.id == *id).collect(),
            LookBy::Page { after, limit, newest_first: false } => {
                let behind = |record: &Record| after.as_ref().is_none_or(|after| record.id > *after);
                there.filter(behind).take(*limit).collect()
            }
            LookBy::Page { after, limit, newest_first: true } => {
                let behind = |record: &Record| after.as_ref().is_none_or(|after| record.id < *after);
                there.rev().filter(behind).take(*limit).collect()
            }
        })
    }

    async fn delete_expired_records(&mut self, limit: usize) -> Result<usize> {
        let all = self.tables.records.values().flat_map(BTreeMap::values);
        let expired = all.filter(|record| record.expires.is_some_and(|at| at <= self.now));
        let expired: Vec<_> =
            expired.map(|record| (record.kind.clone(), record.id.clone())).take(limit).collect();
        for (kind, id) in &expired {
            self.write().records.get_mut(kind).and_then(|records| records.remove(id));
        }
        Ok(expired.len())
    }

    async fn add_receipts(&mut self, num: i64, kind: ReceiptKind, receipts: &Receipts) -> Result<()> {
        if self.tables.runs.contains_key(&num) {
            let held = self.write().receipts.entry((num, kind));
            held.and_modify(|held| held.merge(receipts.clone())).or_insert_with(|| receipts.clone());
        }
        Ok(())
    }

    async fn receipts(&mut self, num: i64) -> Result<Vec<(ReceiptKind, Receipts)>> {
        let held = self.tables.receipts.range((num, ReceiptKind::Start)..=(num, ReceiptKind::Control));
        Ok(held.map(|((_, kind), receipts)| (*kind, receipts.clone())).collect())
    }

    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        Ok(self.tables.nodes.get(&node).and_then(|node| node.lease))
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        let node = self.write().nodes.entry(node).or_default();
        *node = Node { lease: until, departed: node.departed && until.is_none() };
        Ok(())
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        self.write().nodes.insert(node, Node { lease: None, departed: true });
        Ok(())
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        let dead = |node: &Node| node.lease.is_none_or(|until| until <= self.now);
        let dead = self.tables.nodes.iter().filter(|(_, node)| dead(node));
        let shown = |(id, node): (&NodeId, &Node)| DeadNode {
            id: *id,
            is_new: node.lease.is_some(),
            departed: node.departed,
        };
        Ok(dead.map(shown).collect())
    }

    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        let driven = |node: &NodeId| self.tables.driven.range((*node, 0)..=(*node, i64::MAX));
        let mut found: Vec<_> = dead.iter().flat_map(driven).copied().collect();
        found.sort_unstable_by_key(|(_, num)| *num);
        let shown = |(node, num)| Driven { num, node, stalls: self.tables.runs[&num].state.stalls };
        Ok(found.into_iter().take(limit).map(shown).collect())
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        let held = self.tables.driven.range((node, 0)..=(node, i64::MAX));
        Ok(held.map(|(_, num)| self.tables.runs[num].state.stalls).collect())
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        for free in runs {
            self.write().update(free.num, |run| {
                run.state.node = None;
                run.state.due = Some(free.due);
                run.state.stalls = free.stalls;
            });
        }
        Ok(())
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.write().nodes.remove(&node);
        Ok(())
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        let nums = self.tables.deadlines.range(..=(self.now, i64::MAX)).take(limit);
        Ok(nums.map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let nums = self.tables.purge.range(..=(self.now, i64::MAX)).take(limit);
        Ok(nums.map(|(_, num)| self.tables.runs[num].clone()).collect())
    }

    async fn delete_history(&mut self, num: i64, limit: usize) -> Result<usize> {
        let tables = self.write();
        tables.receipts.retain(|(run, _), _| *run != num);
        let mut left = limit;
        let mut is_left = || {
            let deleted = left > 0;
            left -= usize::from(deleted);
            !deleted
        };
        tables.calls.retain(|_, (run, _)| *run != num || is_left());
        if let Some(inbox) = tables.inbox.get_mut(&num) {
            inbox.retain(|_, _| is_left());
        }
        if let Some(ledger) = tables.ledger.get_mut(&num) {
            ledger.retain(|_| is_left());
        }
        Ok(limit - left)
    }

    async fn set_purged(&mut self, num: i64, next: Time) -> Result<()> {
        self.write().update(num, |run| {
            run.purged = true;
            run.state.purge = Some(next);
        });
        Ok(())
    }

    async fn delete_run(&mut self, num: i64) -> Result<()> {
        let tables = self.write();
        tables.ledger.remove(&num);
        tables.inbox.remove(&num);
        tables.unindex(num);
        if let Some(run) = tables.runs.remove(&num) {
            tables.ids.remove(&run.id());
            tables.children.retain(|(_, child)| *child != num);
            tables.listed.remove(&(run.new.workspace, run.new.created, num));
        }
        Ok(())
    }
}
