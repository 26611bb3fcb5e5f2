//! What every backend does alike: [`Store`] in terms of verbs.

use std::future::Future;

use tokio::sync::broadcast;

use super::absorb::{self, ControlWords, LateCommit};
use super::archive::{Archive, Each, export_pages};
use super::meters::{CommitFigures, StoreMeters};
use super::receipts::ReceiptBuffer;
use super::stats::StatsBuffer;
use super::tx::{LedgerRow, Verb};
use super::verbs::{
    AskedStart, ClaimRows, CountInbox, CountOpen, EndedRun, FlushStats, LookAt, PeekStart, ReadCounts,
    ReadDues, ReadInbox, ReadLedger, ReadNodes, ReadReceipts, ReadRunCounts, ReadVersions, StartRun,
    entries_of, message_of,
};
use super::wakes::{Wake, Wakes};
use super::watch::Watch;
use super::{
    Answer, Arrival, Claimed, Claims, Counts, DuplicatesPage, DuplicatesQuery, Find, Glance, HookPage,
    HookQuery, KeyPage, KeyQuery, Lease, LedgerPart, NodeFacts, Numbered, OpenVersions, Page, Part, Query,
    RunCounts, RunTally, Started, StatsQuery, StatsSeries, Store, Sweep, Swept, TallyQuery,
};
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved, Write};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::{Entry, Outcome};
use crate::rules::once::{Ask, OnceAnswer, OnceCall};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::{Start, StartVerdict};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::tx::InboxRow;

/// A store, as far as it is not the same for all of them.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    /// Runs a verb in one durable transaction (or, if it only reads, in a consistent view).
    fn execute<V: Verb>(&self, verb: V) -> impl Future<Output = Result<V::Answer>> + Send;

    /// Commits; a backend may have a faster way for the commits that are all alike.
    fn commit_run(&self, commit: Commit) -> impl Future<Output = Result<Saved>> + Send {
        self.execute(commit)
    }

    /// Starts what was not found to be there; a backend may have a faster way for the starts that are all alike.
    fn create_run(&self, start: StartRun) -> impl Future<Output = Result<Started>> + Send {
        self.execute(start)
    }

    /// Starts. A duplicate needs no write.
    fn start_run(&self, start: StartRun) -> impl Future<Output = Result<Started>> + Send {
        // Told apart here and not inside: a future has room for all that it may have to carry, in each of its layers.
        let asked = match start.start.is_keyless() {
            true => Ok(self.create_run(start)),
            false => Err(Box::pin(look_and_start(self, start))),
        };
        async move {
            match asked {
                Ok(new) => new.await,
                Err(keyed) => keyed.await,
            }
        }
    }

    /// Hands over everything; a backend with several processes shows one moment.
    fn export_all(
        &self,
        workspace: Option<WorkspaceId>,
        each: Each<'_>,
    ) -> impl Future<Output = Result<()>> + Send {
        export_pages(self, workspace, each)
    }

    /// Stops.
    fn stop(&self) -> impl Future<Output = Result<()>> + Send;

    /// Listeners that wait for something to happen.
    fn wakes(&self) -> &Wakes;

    /// Receipts that are not written yet.
    fn buffer(&self) -> &ReceiptBuffer;

    /// Figures that are not written yet.
    fn stats(&self) -> &StatsBuffer;

    /// The counters of this store.
    fn meters(&self) -> &StoreMeters;

    /// The time at which receipts are noted.
    fn clock(&self) -> &dyn Clock;
}

fn start<B: Backend>(store: &B, start: Start) -> impl Future<Output = Result<Started>> + Send {
    let asked = StartRun::of(start).map(|start| (AskedStart::of(&start), store.start_run(start)));
    async move {
        let (asked, starting) = asked?;
        let started = store.meters().failed(starting.await);
        // Boxed: most starts leave no receipt, and all would have to carry this.
        let started = match started {
            Ok(started) => started,
            Err(error) => {
                if let Some(asked) = &asked {
                    let (now, workflow) = (store.clock().now(), Some(&asked.workflow));
                    Backend::stats(store).refused(now, asked.workspace, workflow, &error);
                    Box::pin(absorb::start_refused(store, asked, &error)).await;
                }
                return Err(error);
            }
        };
        store.meters().started(&started);
        Backend::stats(store).started(store.clock().now(), &started);
        tell_of_start(Backend::wakes(store), &started);
        if leaves_receipt(&started) {
            Box::pin(absorb::started(store, &started, asked.as_deref())).await?;
        }
        Ok(started)
    }
}

/// Whether anything of a start was there before.
fn leaves_receipt(started: &Started) -> bool {
    matches!(started.verdict, StartVerdict::Attached | StartVerdict::Replayed)
        || started.delivered.as_ref().is_some_and(|delivered| delivered.absorbed)
}

/// A start whose key may be in use.
async fn look_and_start<B: Backend>(store: &B, start: StartRun) -> Result<Started> {
    let peek = PeekStart(start);
    if let Some(started) = store.execute(peek.clone()).await? {
        return Ok(started);
    }
    if sabotage::commits(Bug::ReadThenInsert) {
        tokio::task::yield_now().await;
    }
    store.create_run(peek.0).await
}

fn tell_of_start(wakes: &Wakes, started: &Started) {
    if let Some(superseded) = started.superseded {
        wakes.tell(Wake::Taken(superseded));
        tell_of_end(wakes, superseded, None, FREED_PERHAPS);
    }
    if let Some(delivered) = started.delivered.as_ref().filter(|delivered| !delivered.absorbed) {
        wakes.tell(Wake::Arrived(delivered.run));
    }
    if started.verdict == StartVerdict::Restarted {
        wakes.moved(started.run.id());
    }
    if (started.created() || started.verdict == StartVerdict::Restarted) && started.run.state.due.is_some() {
        wakes.tell(Wake::DueIn(started.run.new.workspace));
    }
}

fn commit<B: Backend>(store: &B, commit: Commit) -> impl Future<Output = Result<Saved>> + Send {
    // What there is to tell of it, taken out now: by the time it is answered the commit has been with another core.
    let Write { run, status: becomes, .. } = *commit;
    let late = LateCommit::of(&commit);
    let ending =
        commit.beyond().ending.as_ref().map(|ending| ending.parent.as_ref().map(|parent| parent.run));
    let workspace = commit.beyond().workspace;
    let figures = CommitFigures::of(&commit);
    let node = commit.node;
    let saving = store.commit_run(commit);
    async move {
        let saved = saving.await;
        store.meters().committed(&saved, &figures);
        Backend::stats(store).committed(store.clock().now(), &saved, &figures);
        match &saved {
            Ok(saved) => {
                let wakes = Backend::wakes(store);
                match ending {
                    Some(parent) => tell_of_end(wakes, run, parent, saved.freed),
                    None => {
                        wakes.moved(run);
                        if saved.freed {
                            wakes.tell(Wake::Settled);
                        }
                    }
                }
                if becomes == Status::Paused {
                    wakes.tell(Wake::Paused(run));
                }
                // New, or of an earlier life and restarted; or those of a cancelled run, which hear of it.
                let child = |entry: &Entry| matches!(entry, Entry::ChildStarted { .. });
                let conflict = |entry: &Entry| matches!(entry, Entry::HookConflicted { .. });
                if let Some(workspace) = workspace.filter(|_| saved.settled.iter().any(conflict)) {
                    Box::pin(absorb::conflicts(store, (run, workspace), saved)).await;
                }
                if becomes == Status::Cancelled || saved.settled.iter().any(child) {
                    wakes.tell(workspace.map_or(Wake::Due, Wake::DueIn));
                }
            }
            Err(Error::Concurrency { .. }) => {
                store.meters().was_stale(node);
                late.note(store);
            }
            // It may have taken place, with all that others wait for.
            Err(Error::Unknown(_)) => Backend::wakes(store).tell(Wake::All),
            Err(_) => {}
        }
        saved
    }
}

/// If a run is ended or paused by another than its driver, it is not known here whether that has freed a `run_once` grant.
/// It is rare, so listeners are told in any case.
const FREED_PERHAPS: bool = true;

/// Tells of the end of a run: listeners that wait for it or for its `run_once` grants, and its parent.
fn tell_of_end(wakes: &Wakes, run: RunId, parent: Option<RunId>, freed: bool) {
    wakes.tell(Wake::Ended(run));
    if freed {
        wakes.tell(Wake::Settled);
    }
    if let Some(parent) = parent {
        wakes.tell(Wake::Arrived(parent));
    }
}

async fn deliver<B: Backend>(store: &B, deliver: Deliver) -> Result<Delivered> {
    let (workspace, token, id) = (deliver.workspace, deliver.token.clone(), deliver.id.clone());
    let words = (&token, id.as_ref());
    let delivered = match store.meters().failed(store.execute(deliver).await) {
        Ok(delivered) => delivered,
        Err(error) => {
            Backend::stats(store).refused(store.clock().now(), workspace, None, &error);
            absorb::delivery_refused(store, workspace, words, &error).await;
            return Err(error);
        }
    };
    store.meters().delivered(&delivered);
    Backend::stats(store).delivered(store.clock().now(), workspace, &delivered);
    match delivered.absorbed {
        true => absorb::delivered(store, workspace, delivered.run, words).await?,
        false => Backend::wakes(store).tell(Wake::Arrived(delivered.run)),
    }
    Ok(delivered)
}

async fn control<B: Backend>(store: &B, control: Control) -> Result<Controlled> {
    let words = ControlWords::of(&control);
    let action = control.action.clone();
    let controlled = match store.meters().failed(store.execute(control).await) {
        Ok(controlled) => controlled,
        Err(error) => {
            Backend::stats(store).refused(store.clock().now(), words.workspace(), None, &error);
            absorb::control_refused(store, &words, &error).await;
            return Err(error);
        }
    };
    store.meters().controlled(&controlled, &action);
    Backend::stats(store).controlled(store.clock().now(), &controlled, &action);
    let run = &controlled.run;
    if !controlled.changed {
        absorb::controlled(store, run.num, &words);
    } else if action.goes_to_inbox(run.status()) {
        Backend::wakes(store).tell(Wake::Arrived(run.id()));
    } else {
        Backend::wakes(store).tell(Wake::Taken(run.id()));
        if run.status().is_terminal() {
            tell_of_end(Backend::wakes(store), run.id(), run.new.parent, FREED_PERHAPS);
        } else if run.status() == Status::Paused && FREED_PERHAPS {
            Backend::wakes(store).tell(Wake::Settled);
        }
        // It, or its children, which hear of a cancel.
        Backend::wakes(store).tell(Wake::DueIn(run.new.workspace));
    }
    Ok(controlled)
}

async fn once<B: Backend>(store: &B, once: OnceCall) -> Result<OnceAnswer> {
    let claims = once.ask == Ask::Claim;
    let answer = store.execute(once).await?;
    if !claims {
        Backend::wakes(store).tell(Wake::Settled);
    }
    Ok(answer)
}

/// Number of workspaces and minutes whose figures one transaction writes: other writes wait as long.
const STATS_EACH: usize = 50;

/// Writes the figures that are collected, some at a time.
async fn flush_stats<B: Backend>(store: &B) -> Result<()> {
    let stats = Backend::stats(store);
    let _turn = stats.writing().await;
    let mut left = stats.take().into_iter();
    loop {
        let minutes: Vec<_> = left.by_ref().take(STATS_EACH).collect();
        if minutes.is_empty() {
            return Ok(());
        }
        let flushed = store.execute(FlushStats { server: stats.server(), minutes: minutes.clone() }).await;
        if let Err(error) = flushed {
            // After an unknown outcome they may be there: better too few than twice as many.
            let again = minutes.into_iter().filter(|_| matches!(error, Error::Unavailable(_)));
            stats.put_back(store.clock().now(), again.chain(left));
            return Err(error);
        }
    }
}

async fn sweep<B: Backend>(store: &B, sweep: Sweep) -> Result<Swept> {
    let (swept, ended) = store.meters().failed(store.execute(sweep).await)?;
    store.meters().swept(&swept);
    let now = store.clock().now();
    Backend::stats(store).swept(now, &ended);
    if Backend::stats(store).is_due(now)
        && let Err(error) = flush_stats(store).await
    {
        tracing::warn!(%error, "figures of the last seconds are not written yet");
    }
    let wakes = Backend::wakes(store);
    for EndedRun { run, parent, .. } in &ended {
        wakes.tell(Wake::Taken(*run));
        tell_of_end(wakes, *run, *parent, FREED_PERHAPS);
    }
    if swept.orphaned > 0 || !ended.is_empty() {
        wakes.tell(Wake::Due);
    }
    Ok(swept)
}

async fn claim<B: Backend>(store: &B, claim: Claim) -> Result<Claims> {
    let claimed = store.meters().failed(store.execute(claim).await);
    let claimed = claimed?;
    Backend::stats(store).claimed(store.clock().now(), &claimed);
    let ClaimRows { runs: rows, next_due, now, freed } = claimed;
    store.meters().claimed(rows.len());
    if freed {
        Backend::wakes(store).tell(Wake::Settled);
    }
    let mut runs = Vec::with_capacity(rows.len());
    for rows in rows {
        Backend::wakes(store).moved(rows.run.id());
        let entries = match &rows.ledger {
            None => None,
            Some(ledger) => {
                let mut entries = Vec::new();
                for row in ledger {
                    entries.extend(entries_of(row)?);
                }
                Some(entries)
            }
        };
        runs.push(Claimed { run: rows.run, entries, inbox: arrivals(&rows.inbox)? });
    }
    Ok(Claims { runs, next_due, now })
}

fn arrivals(rows: &[InboxRow]) -> Result<Vec<Arrival>> {
    let read = |row: &InboxRow| Ok(Arrival { number: row.arrival, at: row.at, message: message_of(row)? });
    rows.iter().map(read).collect()
}

fn numbered(rows: &[LedgerRow], from: u64) -> Result<Vec<Numbered>> {
    let mut numbered = Vec::new();
    for row in rows {
        let entries = entries_of(row)?.into_iter().zip(row.seq + 1..);
        numbered.extend(entries.map(|(entry, number)| Numbered { number, at: row.at, entry }));
    }
    numbered.retain(|n| n.number >= from);
    Ok(numbered)
}

async fn ledger_part<B: Backend>(store: &B, part: Part) -> Result<LedgerPart> {
    let (version, rows) = loop {
        if let Some(found) = store.execute(part).await? {
            break found;
        }
    };
    let mut entries = numbered(&rows, part.from)?;
    entries.truncate(part.limit);
    // None at all: forgotten, or all of them are before this part.
    let next = entries.last().map(|line| line.number + 1).filter(|next| *next <= version);
    Ok(LedgerPart { entries, next })
}

/// Counts a call that fails.
async fn counted<B: Backend, T>(store: &B, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
    store.meters().failed(call.await)
}

impl<B: Backend> Store for B {
    fn start(&self, request: Start) -> Answer<'_, Started> {
        Box::pin(start(self, request))
    }

    fn dues(&self, workflows: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>> {
        Box::pin(counted(self, self.execute(ReadDues(workflows))))
    }

    fn claim(&self, request: Claim) -> Answer<'_, Claims> {
        Box::pin(claim(self, request))
    }

    fn commit(&self, request: Commit) -> Answer<'_, Saved> {
        Box::pin(commit(self, request))
    }

    fn deliver(&self, request: Deliver) -> Answer<'_, Delivered> {
        Box::pin(deliver(self, request))
    }

    fn control(&self, request: Control) -> Answer<'_, Controlled> {
        Box::pin(control(self, request))
    }

    fn once(&self, request: OnceCall) -> Answer<'_, OnceAnswer> {
        Box::pin(counted(self, once(self, request)))
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        Box::pin(counted(self, self.execute(lease)))
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        Box::pin(counted(self, self.execute(keep)))
    }

    fn sweep(&self, request: Sweep) -> Answer<'_, Swept> {
        Box::pin(sweep(self, request))
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        Box::pin(counted(self, self.execute(find)))
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        Box::pin(counted(self, self.execute(query)))
    }

    fn keys(&self, query: KeyQuery) -> Answer<'_, KeyPage> {
        Box::pin(counted(self, self.execute(query)))
    }

    fn glances(&self, runs: Vec<Run>) -> Answer<'_, Vec<Glance>> {
        Box::pin(counted(self, self.execute(LookAt(runs))))
    }

    fn hooks(&self, query: HookQuery) -> Answer<'_, HookPage> {
        Box::pin(counted(self, self.execute(query)))
    }

    fn tally(&self, query: TallyQuery) -> Answer<'_, RunTally> {
        Box::pin(counted(self, self.execute(query)))
    }

    fn versions(&self, workspace: WorkspaceId, cap: usize) -> Answer<'_, OpenVersions> {
        Box::pin(counted(self, self.execute(ReadVersions { workspace, cap })))
    }

    fn nodes(&self, workspace: WorkspaceId, cap: usize) -> Answer<'_, Vec<NodeFacts>> {
        Box::pin(counted(self, async move {
            let mut nodes = self.execute(ReadNodes { workspace, cap }).await?;
            for facts in &mut nodes {
                facts.stale = self.meters().stale_of(facts.node);
            }
            Ok(nodes)
        }))
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        Box::pin(counted(self, async move {
            numbered(&self.execute(ReadLedger { workspace, run, from }).await?, from)
        }))
    }

    fn ledger_part(&self, part: Part) -> Answer<'_, LedgerPart> {
        Box::pin(counted(self, ledger_part(self, part)))
    }

    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        self.inbox_part(Part { workspace, run, from, limit: usize::MAX, bytes: usize::MAX })
    }

    fn inbox_part(&self, part: Part) -> Answer<'_, Vec<Arrival>> {
        Box::pin(counted(self, async move { arrivals(&self.execute(ReadInbox(part)).await?) }))
    }

    fn unconsumed(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, u64> {
        Box::pin(counted(self, self.execute(CountInbox { workspace, run })))
    }

    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        Box::pin(async move {
            // What is shown is written: a count never goes back.
            absorb::flush(self).await?;
            self.execute(ReadReceipts { workspace, run }).await
        })
    }

    fn duplicates(&self, query: DuplicatesQuery) -> Answer<'_, DuplicatesPage> {
        Box::pin(counted(self, async move {
            absorb::flush(self).await?;
            self.execute(query).await
        }))
    }

    fn stats(&self, query: StatsQuery) -> Answer<'_, StatsSeries> {
        Box::pin(counted(self, async move {
            query.check()?;
            flush_stats(self).await?;
            self.execute(query).await
        }))
    }

    fn records(&self, look: Look) -> Answer<'_, Vec<Record>> {
        Box::pin(counted(self, self.execute(look)))
    }

    fn counts(&self, cap: u64) -> Answer<'_, Counts> {
        Box::pin(counted(self, self.execute(ReadCounts(cap))))
    }

    fn counts_in(&self, workspace: WorkspaceId, cap: u64) -> Answer<'_, RunCounts> {
        Box::pin(counted(self, self.execute(ReadRunCounts { workspace, cap })))
    }

    fn open_runs(&self, workspace: WorkspaceId, cap: u64) -> Answer<'_, u64> {
        Box::pin(counted(self, self.execute(CountOpen { workspace, cap })))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        Backend::wakes(self).listen()
    }

    fn archive(&self) -> Option<&dyn Archive> {
        Some(self)
    }

    fn watch(&self, run: RunId) -> Watch {
        Backend::wakes(self).watch(run)
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            // A store that can write no more is the first that has to be closed.
            let flushed = absorb::flush(self).await.and(flush_stats(self).await);
            self.stop().await.and(flushed)
        })
    }
}
