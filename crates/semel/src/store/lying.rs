//! Rows that lie: the deliberate bugs of the verbs, for the tools that must find them (feature `sabotage`).
//!
//! A bug of a verb is done by the rows beneath it, or to its answer. So the verbs themselves have no trace of one.

use std::any::Any;
use std::borrow::Cow;
use std::collections::HashSet;

use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::archive::CallLine;
use crate::rules::claim::{Claim, Drives, MAX_STALLS, SUSPECT};
use crate::rules::commit::{Commit, Write};
use crate::rules::control::{Control, ControlAction, Controlled};
use crate::rules::deliver::{Deliver, PastCall, Unconsumed};
use crate::rules::entry::{Entry, Message, Resolution, decode, encode};
use crate::rules::family::Family;
use crate::rules::finish::Purge;
use crate::rules::key::{CallId, Key, Label, RecordId, Scope, Token};
use crate::rules::once::OnceRow;
use crate::rules::path::Name;
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Look, Record};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::stats::StatsSpan;
use crate::rules::status::Status;
use crate::sabotage::{Bug, commits};
use crate::store::archive::{ArchiveRows, OnceAt, RecordAt};
use crate::store::duplicates::{DuplicatePlace, DuplicateRow, DuplicatesQuery};
use crate::store::list::{Scan, Scanned};
use crate::store::tx::{
    CallAt, CallRows, ClaimedRow, CountRows, CountScan, DeadNode, Driven, DueRows, DueScan, GlanceRow,
    GlanceRows, HeldOnce, HookRows, InboxRow, InboxRows, InsertedRun, KeyScan, LedgerRow, LedgerRows,
    NewHook, NodeRows, OnceRows, OpenRuns, RecordRows, RunRows, SetFree, StatsAt, StatsLook, StatsRow,
    StatsRows, StoreTx, SweepRows, TallyRows, TxTime, Verb, Watcher, WatcherRows,
};
use crate::store::verbs::{ClaimRows, ClaimedRows, StartRun};
use crate::store::{DueVersion, HookQuery, OpenHook, OpenVersion, Sweep};

/// Runs a verb over rows that lie, and falsifies what it asks for and its answer.
pub(super) async fn run<V: Verb, T: StoreTx>(verb: &V, tx: &mut T) -> Result<V::Answer> {
    let mut lying = LyingTx { tx, verb: LyingVerb::of(verb), kept: Vec::new() };
    let asked: &dyn Any = verb;
    let misread = match asked.downcast_ref::<Commit>().filter(|_| misreads_commits()) {
        Some(commit) => Some(misread(commit, lying.tx).await?),
        None => None,
    };
    let misread = misread.as_ref().map(|commit| commit as &dyn Any);
    let verb: &V = misread.and_then(|commit| commit.downcast_ref()).unwrap_or(verb);
    let mut answer = verb.run(&mut lying).await?;
    let LyingTx { verb, kept, .. } = lying;
    let told: &mut dyn Any = &mut answer;
    if let Some(controlled) = told.downcast_mut::<Controlled>() {
        let late = matches!(verb, LyingVerb::Cancel) && !controlled.repeated;
        controlled.changed |= late && commits(Bug::EveryCancelWins);
    }
    if let Some(claimed) = told.downcast_mut::<ClaimRows>() {
        let kept = |run: &&mut ClaimedRows| kept.contains(&run.run.num);
        for run in claimed.runs.iter_mut().filter(kept) {
            run.run.state.version -= 1;
            // The claim is not in the ledger.
            run.ledger.as_mut().map(Vec::pop);
        }
    }
    Ok(answer)
}

fn misreads_commits() -> bool {
    [Bug::SkipVersionGuard, Bug::TimersFireEarly, Bug::RestMissesArrivals].into_iter().any(commits)
}

/// A commit without the condition that a bug ignores: its version, its earliest time, or the messages that its driver has seen.
async fn misread<T: StoreTx>(commit: &Commit, tx: &mut T) -> Result<Commit> {
    let mut write = Write::clone(commit);
    if commits(Bug::SkipVersionGuard)
        && let Some(run) = tx.run_at(write.num).await?
    {
        write.expected = run.state.version;
    }
    if commits(Bug::TimersFireEarly)
        && let Some(beyond) = &mut write.beyond
    {
        beyond.not_before = None;
    }
    if commits(Bug::RestMissesArrivals) {
        write.seen = u64::MAX;
    }
    Ok(Commit::new(write))
}

/// The verb that runs, as far as a bug belongs to one.
#[derive(Clone, Copy)]
enum LyingVerb {
    Start,
    Claim,
    Deliver,
    Cancel,
    Fork,
    Sweep,
    Other,
}

impl LyingVerb {
    fn of<V: Verb>(verb: &V) -> Self {
        let verb: &dyn Any = verb;
        match verb.downcast_ref::<Control>().map(|control| &control.action) {
            Some(ControlAction::Cancel { .. }) => Self::Cancel,
            Some(ControlAction::Fork(_)) => Self::Fork,
            _ if verb.is::<StartRun>() => Self::Start,
            _ if verb.is::<Claim>() => Self::Claim,
            _ if verb.is::<Deliver>() => Self::Deliver,
            _ if verb.is::<Sweep>() => Self::Sweep,
            _ => Self::Other,
        }
    }
}

/// Rows of which some lie, if this process is to commit a bug.
struct LyingTx<'a, T> {
    tx: &'a mut T,
    verb: LyingVerb,
    /// Runs that were taken over without a new version.
    kept: Vec<i64>,
}

impl<T: StoreTx> LyingTx<'_, T> {
    /// Whether a start does not look again whether its key is free.
    fn trusts_the_first_look(&self) -> bool {
        matches!(self.verb, LyingVerb::Start) && commits(Bug::ReadThenInsert)
    }

    fn forgets_deliveries(&self) -> bool {
        matches!(self.verb, LyingVerb::Start | LyingVerb::Deliver) && commits(Bug::DeliveryIdForgotten)
    }

    /// The run that a new one is a fork of, if the fork is to share its effect keys against the caller's wish.
    async fn forked_from(&mut self, new: &NewRun, text: &str) -> Result<Option<Run>> {
        let fresh = matches!(self.verb, LyingVerb::Fork) && new.lineage == new.id;
        if !fresh || !commits(Bug::FreshForkSharesKeys) {
            return Ok(None);
        }
        match decoded(text).first() {
            Some(Entry::Created(created)) => match created.forked_from {
                Some((source, _)) => self.tx.run(source).await,
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }
}

fn decoded(text: &str) -> Vec<Entry> {
    decode(text).expect("a verb writes entries")
}

/// What has happened, as if it had not.
fn deny(entry: Entry) -> Entry {
    match entry {
        Entry::StepResolved { step, resolution: Resolution::Happened(_), by } => {
            Entry::StepResolved { step, resolution: Resolution::DidNotHappen, by }
        }
        entry => entry,
    }
}

/// Methods that only hand on.
macro_rules! honest {
    ($($name:ident($($arg:ident: $of:ty),*) -> $answer:ty;)*) => {
        $(async fn $name(&mut self, $($arg: $of),*) -> Result<$answer> {
            self.tx.$name($($arg),*).await
        })*
    };
}

impl<T: StoreTx> TxTime for LyingTx<'_, T> {
    fn now(&self) -> Time {
        self.tx.now()
    }
}

impl<T: StoreTx> RunRows for LyingTx<'_, T> {
    honest! {
        insert_runs(runs: &[InsertedRun]) -> Vec<Option<i64>>;
        held_keys(workspace: WorkspaceId, scope: &Scope, keys: &[&Key]) -> HashSet<Key>;
        run(id: RunId) -> Option<Run>;
        run_at(num: i64) -> Option<Run>;
        status(id: RunId) -> Option<Status>;
        save(num: i64, expected: u64, state: &RunState) -> bool;
        advance(num: i64, expected: u64, count: u64, text: &str) -> bool;
        list(scan: &Scan<'_>) -> Scanned;
        keys(scan: &KeyScan<'_>) -> Vec<Run>;
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        match self.trusts_the_first_look() {
            true => Ok(None),
            false => self.tx.holder(workspace, scope, key).await,
        }
    }

    async fn insert_run(&mut self, new: &NewRun, state: &RunState, text: &str) -> Result<Option<i64>> {
        if self.trusts_the_first_look()
            && let Some(held) = self.tx.holder(new.workspace, &new.scope, &new.key).await?
        {
            // The index would refuse two runs that hold one key.
            let freed = RunState { holds_key: false, ..held.state.clone() };
            self.tx.save(held.num, held.state.version, &freed).await?;
        }
        match self.forked_from(new, text).await? {
            Some(source) => {
                let mut entries = decoded(text);
                if let Some(Entry::Created(created)) = entries.first_mut() {
                    created.lineage = source.new.lineage;
                }
                let shared = NewRun { lineage: source.new.lineage, ..new.clone() };
                self.tx.insert_run(&shared, state, &encode(&entries)).await
            }
            None => self.tx.insert_run(new, state, text).await,
        }
    }

    async fn save_with(&mut self, num: i64, expected: u64, state: &RunState, text: &str) -> Result<bool> {
        if commits(Bug::SupersededGoesOn)
            && matches!(self.verb, LyingVerb::Start)
            && state.status == Status::Cancelled
            && let Some(run) = self.tx.run_at(num).await?
        {
            let open = RunState { holds_key: false, ..run.state };
            return self.tx.save(num, expected, &open).await;
        }
        let text = match commits(Bug::HappenedIgnored) {
            true => Cow::Owned(encode(&decoded(text).into_iter().map(deny).collect::<Vec<_>>())),
            false => Cow::Borrowed(text),
        };
        let saved = self.tx.save_with(num, expected, state, &text).await?;
        if saved && state.status == Status::Waiting && commits(Bug::RestFreesTokens) {
            self.tx.delete_hooks(num).await?;
        }
        Ok(saved)
    }

    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        match commits(Bug::CancelForgetsChildren) {
            true => Ok(Vec::new()),
            false => self.tx.open_children(parent).await,
        }
    }
}

impl<T: StoreTx> DueRows for LyingTx<'_, T> {
    honest! {
        due(workflows: &[Drives], limit: usize) -> Vec<Run>;
        dues(workflows: &[Drives], after: Time) -> Vec<Option<Time>>;
        due_in(families: &[Family], limit: usize) -> Vec<Run>;
        next_due_in(families: &[Family], after: Time) -> Option<Time>;
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        match commits(Bug::OverdueIsNotEnded) {
            true => Ok(Vec::new()),
            false => self.tx.overdue(limit).await,
        }
    }

    async fn take(&mut self, taken: &[ClaimedRow]) -> Result<()> {
        let mut taken = taken.to_vec();
        if commits(Bug::ClaimedStaysDue) {
            for row in &mut taken {
                row.state.due = self.tx.run_at(row.num).await?.and_then(|run| run.state.due);
            }
        }
        if commits(Bug::TakeoverKeepsVersion) {
            let mut others = Vec::new();
            for row in taken {
                match self.tx.run_at(row.num).await? {
                    Some(run) if run.status() == Status::Running && row.state.status == Status::Running => {
                        let kept = RunState { version: row.expected, ..row.state };
                        self.tx.save(row.num, row.expected, &kept).await?;
                        self.kept.push(row.num);
                    }
                    _ => others.push(row),
                }
            }
            taken = others;
        }
        self.tx.take(&taken).await
    }
}

impl<T: StoreTx> LedgerRows for LyingTx<'_, T> {
    honest! {
        append(num: i64, seq: u64, text: &str) -> ();
        ledgers(nums: &[i64], from: u64) -> Vec<LedgerRow>;
        whole_ledgers(nums: &[i64], bytes: usize) -> Vec<LedgerRow>;
        ledger_part(num: i64, from: u64, limit: usize, bytes: usize) -> Option<Vec<LedgerRow>>;
        ledger_first(num: i64) -> Option<LedgerRow>;
        ledger_tail(num: i64, limit: usize) -> Vec<LedgerRow>;
    }
}

impl<T: StoreTx> InboxRows for LyingTx<'_, T> {
    honest! {
        unconsumed(num: i64) -> Unconsumed;
        arrived(num: i64, arrivals: &[u64]) -> Vec<u64>;
        consume(num: i64, arrival: u64) -> bool;
    }

    async fn arrive(&mut self, num: i64, message: &Message) -> Result<Option<u64>> {
        let forgotten = match message {
            Message::CancelRequested { .. } => commits(Bug::WishForgotten),
            Message::Delivery { .. } => {
                commits(Bug::StartForgetsDelivery) && matches!(self.verb, LyingVerb::Start)
            }
            _ => false,
        };
        if !forgotten {
            return self.tx.arrive(num, message).await;
        }
        let open = self.tx.run_at(num).await?.filter(|run| !run.status().is_terminal());
        Ok(open.map(|run| run.arrivals + 1))
    }

    async fn inboxes(&mut self, nums: &[i64], from: u64, bytes: usize) -> Result<Vec<InboxRow>> {
        let rows = self.tx.inboxes(nums, from, bytes).await?;
        if !matches!(self.verb, LyingVerb::Claim) || !commits(Bug::ClaimDropsInbox) {
            return Ok(rows);
        }
        for row in rows {
            self.tx.consume(row.num, row.arrival).await?;
        }
        Ok(Vec::new())
    }

    async fn consume_all(&mut self, num: i64, arrivals: &[u64]) -> Result<()> {
        match commits(Bug::ConsumedStays) {
            true => Ok(()),
            false => self.tx.consume_all(num, arrivals).await,
        }
    }
}

impl<T: StoreTx> HookRows for LyingTx<'_, T> {
    honest! {
        insert_hook(hook: NewHook<'_>) -> bool;
        open_hooks(query: &HookQuery, limit: usize) -> Vec<OpenHook>;
        hook_owner(workspace: WorkspaceId, token: &Token) -> Option<RunId>;
        hook(workspace: WorkspaceId, token: &Token) -> Option<Run>;
        delete_hook(workspace: WorkspaceId, token: &Token, num: i64) -> ();
    }

    async fn delete_hooks(&mut self, num: i64) -> Result<()> {
        match commits(Bug::EndKeepsTokens) {
            true => Ok(()),
            false => self.tx.delete_hooks(num).await,
        }
    }
}

impl<T: StoreTx> WatcherRows for LyingTx<'_, T> {
    honest! {
        insert_watcher(num: i64, watcher: &Watcher) -> ();
        insert_watchers(watchers: &[(i64, Watcher)]) -> ();
    }

    async fn take_watchers(&mut self, num: i64) -> Result<Vec<Watcher>> {
        let watchers = self.tx.take_watchers(num).await?;
        Ok(if commits(Bug::EndIsNotTold) { Vec::new() } else { watchers })
    }
}

impl<T: StoreTx> CallRows for LyingTx<'_, T> {
    honest! {
        add_receipts(num: i64, kind: ReceiptKind, receipts: &Receipts) -> ();
        receipts(num: i64) -> Vec<(ReceiptKind, Receipts)>;
        duplicates(query: &DuplicatesQuery, before: Option<DuplicatePlace>) -> Vec<DuplicateRow>;
    }

    async fn call(&mut self, workspace: WorkspaceId, scope: &str, id: &CallId) -> Result<Option<PastCall>> {
        match self.forgets_deliveries() {
            true => Ok(None),
            false => self.tx.call(workspace, scope, id).await,
        }
    }

    async fn insert_call(
        &mut self,
        at: CallAt<'_>,
        num: i64,
        call: &PastCall,
        replaces: Option<RunId>,
    ) -> Result<bool> {
        match self.forgets_deliveries() {
            true => Ok(true),
            false => self.tx.insert_call(at, num, call, replaces).await,
        }
    }
}

impl<T: StoreTx> OnceRows for LyingTx<'_, T> {
    honest! {
        once(workspace: WorkspaceId, scope: &str, label: &Label) -> Option<OnceRow>;
        put_once(workspace: WorkspaceId, scope: &str, label: &Label, row: Option<&OnceRow>) -> ();
        insert_once_waiter(at: &OnceAt, run: RunId) -> ();
        once_waiters(at: &OnceAt) -> Vec<RunId>;
        delete_once_waiters(at: &OnceAt) -> ();
        delete_expired_once(limit: usize) -> usize;
    }

    async fn held_once(&mut self, owner: RunId) -> Result<Vec<HeldOnce>> {
        match commits(Bug::EndKeepsOnces) {
            true => Ok(Vec::new()),
            false => self.tx.held_once(owner).await,
        }
    }
}

impl<T: StoreTx> RecordRows for LyingTx<'_, T> {
    honest! {
        record(kind: &Name, id: &RecordId) -> Option<Record>;
        put_record(record: &Record, replaces: Option<u64>) -> bool;
        records(look: &Look) -> Vec<Record>;
        delete_expired_records(limit: usize) -> usize;
    }
}

impl<T: StoreTx> NodeRows for LyingTx<'_, T> {
    honest! {
        put_lease(node: NodeId, until: Option<Time>) -> ();
        enroll(node: NodeId, until: Time) -> ();
        depart(node: NodeId) -> ();
        dead_nodes() -> Vec<DeadNode>;
        held_by(node: NodeId) -> Vec<u32>;
        delete_node(node: NodeId) -> ();
    }

    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        let lease = self.tx.lease(node).await?;
        let believed = matches!(self.verb, LyingVerb::Claim) && commits(Bug::ClaimWithoutLease);
        Ok(if believed { Some(Time(i64::MAX)) } else { lease })
    }

    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        match commits(Bug::SweepForgetsOrphans) {
            true => Ok(Vec::new()),
            false => self.tx.driven(dead, limit).await,
        }
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        let mut runs = runs.to_vec();
        if matches!(self.verb, LyingVerb::Sweep) && commits(Bug::BlameBystanders) {
            runs.iter_mut().filter(|run| run.stalls >= SUSPECT).for_each(|run| run.stalls = MAX_STALLS);
        }
        self.tx.set_free(&runs).await
    }
}

impl<T: StoreTx> SweepRows for LyingTx<'_, T> {
    honest! {
        purgeable(limit: usize) -> Vec<Run>;
        delete_history(num: i64, limit: usize) -> usize;
        set_purged(num: i64, next: Time) -> ();
        delete_run(num: i64) -> ();
        forget(run: &Run, what: Purge, limit: usize) -> usize;
    }
}

impl<T: StoreTx> StatsRows for LyingTx<'_, T> {
    honest! {
        stats_at(at: &StatsAt) -> Option<StatsRow>;
        put_stats(at: &StatsAt, body: &str, workflows: &str) -> ();
        stats(look: &StatsLook) -> Vec<StatsRow>;
        delete_stats(span: StatsSpan, before: i64, limit: usize) -> usize;
    }
}

impl<T: StoreTx> CountRows for LyingTx<'_, T> {
    honest! {
        open_runs(workspace: Option<WorkspaceId>, cap: usize) -> OpenRuns;
        open_in(workspace: WorkspaceId, cap: usize) -> u64;
        in_doubt(paused: &[i64]) -> u64;
        due_now(cap: usize) -> u64;
        live_nodes(cap: usize) -> u64;
    }
}

impl<T: StoreTx> ArchiveRows for LyingTx<'_, T> {
    honest! {
        runs_after(num: i64, limit: usize) -> Vec<Run>;
        tokens_of(num: i64) -> Vec<Token>;
        calls_of(num: i64) -> Vec<CallLine>;
        watchers_of(num: i64) -> Vec<Watcher>;
        once_after(at: Option<&OnceAt>, limit: usize) -> Vec<HeldOnce>;
        records_after(at: Option<&RecordAt>, limit: usize) -> Vec<Record>;
        live_node() -> Option<NodeId>;
        restore_run(run: &Run) -> Option<i64>;
        restore_commit(num: i64, seq: u64, at: Time, text: &str) -> ();
        restore_message(num: i64, arrival: u64, at: Time, text: &str) -> ();
        sound() -> Vec<String>;
    }
}

impl<T: StoreTx> GlanceRows for LyingTx<'_, T> {
    honest! {
        glances(nums: &[i64]) -> Vec<GlanceRow>;
    }
}

impl<T: StoreTx> TallyRows for LyingTx<'_, T> {
    honest! {
        count_runs(scan: &CountScan<'_>) -> (u64, usize);
        due_versions(scan: &DueScan<'_>) -> Vec<DueVersion>;
        open_versions(workspace: WorkspaceId, status: Status, cap: usize) -> Vec<OpenVersion>;
        leases(limit: usize) -> Vec<(NodeId, Option<Time>)>;
        held_in(workspace: WorkspaceId, cap: usize) -> Vec<(NodeId, u64)>;
    }
}
