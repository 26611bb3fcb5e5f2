//! What a run's driver and its workflow code share while the run is in memory.
//!
//! The workflow's code asks, waits and records here; the driver makes durable what was recorded and lets those go on
//! who waited for it. Two rules make effects safe:
//!
//! - *Replay first.* A rebuilt workflow is given its recorded results until it has come by all of them. What is new waits
//!   meanwhile. If it stops short of one, the code no longer fits the ledger, and no effect begins.
//! - *Durable first.* A result is handed on as soon as it is recorded, but before the next effect begins, everything that
//!   was recorded before is durable. So a run of n steps costs n commits, its end included.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use super::Core;
use super::inbox::{Inbox, On};
use super::replay::watch::{Asked, Place as At, Watch};
use super::signal::Signal;
use super::waits::Waits;
use crate::clock::Time;
use crate::id::RunId;
use crate::rules::entry::{Entry, Outcome};
use crate::rules::key::{Label, Token};
use crate::rules::ledger::{HookState, Ledger, Record};
use crate::rules::path::{Path, Visit, Visits};
use crate::rules::status::Status;
use crate::sdk::fail::{Fail, Result, fatal};
use crate::store::{Arrival, Claimed};

/// Where an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is given its recorded results.
    Replaying,
    /// It does new things.
    Live,
    /// It begins nothing any more: the engine stops.
    Stopping,
    /// It is looked at, and does nothing new.
    Dry,
}

/// How a run left memory.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    /// It has ended.
    Ended(Outcome),
    /// It is somebody else's, or waits in the store.
    Gone,
}

/// What the rest of the engine wants of a driver.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "orders do not exclude each other")]
pub(crate) struct Orders {
    /// Something has arrived in the inbox.
    pub(super) look: bool,
    /// The run belongs to somebody else.
    pub(super) lost: bool,
    /// A run that rests in memory was claimed again.
    pub(super) claimed: Option<Box<Claimed>>,
    /// A run that rests in memory makes room.
    pub(super) evicted: bool,
    /// Begin nothing more, and give the run back when what has begun is over.
    pub(super) stop: bool,
    /// Give the run back now.
    pub(super) stop_now: bool,
}

impl Orders {
    /// Something may have arrived.
    pub(crate) fn look_now(&mut self) {
        self.look = true;
    }
}

/// Something that waits for the end of the replay.
struct Parked {
    asks: Option<Visit>,
    waker: Waker,
}

/// Somebody who waits until a version is durable.
#[derive(Default)]
struct Barrier {
    version: Option<u64>,
    registered: Option<Waker>,
}

/// What a hook has asked for during the replay.
enum Deferred {
    Open(Visit, Token),
    Close(Visit),
}

/// The part that is guarded by a lock. It is held for moments only, and never while user code runs.
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) inbox: Inbox,
    pub(super) waits: Waits,
    pub(crate) phase: Phase,
    pub(super) orders: Orders,
    /// Bodies that are being executed.
    pub(super) active: usize,
    /// Why the code does not fit the ledger.
    pub(super) diverged: Option<String>,
    /// What is polled now is given what is recorded, and does nothing new: it has lost a race.
    held: usize,
    /// The engine is dropping the workflow: what it drops now is not the workflow's doing.
    pub(super) torn: bool,
    /// How many recorded visits the execution has not come by yet.
    unvisited: usize,
    pub(super) visits: Visits,
    parked: Vec<Parked>,
    /// Those that wanted to go on while the run was not claimed.
    early: Vec<Waker>,
    deferred: Vec<Deferred>,
    /// Up to which version everything is durable.
    durable: u64,
    barriers: Vec<(u64, Waker)>,
    /// Labels whose body is being executed in this run, and who waits for it.
    pub(crate) onces: HashMap<(String, Label), Vec<Waker>>,
    over: Option<Over>,
    /// Waits durably; whoever claims it next may be another engine.
    resting: bool,
    listeners: Vec<Waker>,
}

/// One run in memory.
pub(crate) struct Cell {
    pub(crate) core: Arc<Core>,
    pub(crate) id: RunId,
    pub(super) num: i64,
    pub(super) signal: Arc<Signal>,
    /// Lost, or asked to end: bodies that look stop early.
    stopped: AtomicBool,
    /// Looks on while the run is only looked at.
    pub(super) watch: Option<Watch>,
    state: Mutex<State>,
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.id)
    }
}

impl Cell {
    pub(super) fn new(core: Arc<Core>, ledger: Ledger, arrivals: Vec<Arrival>, dry: bool) -> Arc<Self> {
        let unvisited = ledger.to_visit();
        let phase = match (dry, unvisited) {
            (true, _) => Phase::Dry,
            (false, 0) => Phase::Live,
            (false, _) => Phase::Replaying,
        };
        let run = ledger.run();
        let (id, num, durable) = (run.id(), run.num, run.state.version);
        let stopped = AtomicBool::new(ledger.cancelling().is_some());
        let mut state = State {
            ledger,
            inbox: Inbox::default(),
            waits: Waits::default(),
            phase,
            orders: Orders::default(),
            active: 0,
            diverged: None,
            held: 0,
            torn: false,
            unvisited,
            visits: Visits::default(),
            parked: Vec::new(),
            early: Vec::new(),
            deferred: Vec::new(),
            durable,
            barriers: Vec::new(),
            onces: HashMap::new(),
            over: None,
            resting: false,
            listeners: Vec::new(),
        };
        state.take_in(arrivals);
        let watch = dry.then(Watch::default);
        Arc::new(Self { core, id, num, signal: Arc::default(), stopped, watch, state: Mutex::new(state) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done by a panic: every change is a single call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a body had better stop: the run is lost, or was asked to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Gives the driver an order.
    pub(crate) fn order(&self, order: impl FnOnce(&mut Orders)) {
        let mut state = self.lock();
        order(&mut state.orders);
        if state.orders.lost {
            self.stopped.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.signal.nudge();
    }

    /// Lets the driver see what was changed.
    pub(crate) fn nudge(&self) {
        self.signal.nudge();
    }

    /// Visits a path: its identity in this run from here on.
    pub(crate) fn visit(&self, path: Path, indexed: bool) -> Result<Visit> {
        let state = &mut *self.lock();
        let visit = match indexed {
            true => state.visits.indexed(path),
            false => state.visits.once(path).map_err(fatal)?,
        };
        if state.unvisited > 0 && state.ledger.record_at(&visit).is_some() && !state.ledger.is_carried(&visit)
        {
            state.unvisited -= 1;
        }
        Ok(visit)
    }

    /// Tells whoever looks on what the code asks for.
    pub(crate) fn asks(&self, visit: &Visit, asked: impl FnOnce() -> Asked) {
        if let Some(watch) = &self.watch {
            watch.asks(At::Visit(visit.clone()), asked());
        }
    }

    /// The same for a label.
    pub(crate) fn asks_once(&self, (scope, label): &(String, Label)) {
        if let Some(watch) = &self.watch {
            watch.asks(At::Once(scope.clone(), label.clone()), Asked::Once);
        }
    }

    /// Records an entry for the next commit.
    pub(crate) fn record(&self, entry: Entry) {
        self.lock().record(entry);
        self.signal.nudge();
    }

    /// Waits until new things may be done. `asks` is what waits, to name it if that never comes.
    pub(crate) async fn live(&self, asks: Option<&Visit>) {
        let _waits = self.watch.as_ref().zip(asks).map(|(watch, asks)| watch.waits(asks));
        let mut parked = None;
        poll_fn(|cx| self.lock().poll_live(cx, asks, &mut parked)).await;
    }

    /// Lets nothing new be done until the guard is dropped.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.lock().held += 1;
        Hold(self)
    }

    /// Waits until everything recorded so far is durable.
    pub(crate) async fn barrier(&self) {
        let mut barrier = Barrier::default();
        poll_fn(|cx| self.lock().poll_durable(cx, &mut barrier)).await;
    }

    /// Waits until an effect may begin, and counts it until the guard is dropped.
    pub(crate) async fn begin(self: &Arc<Self>, asks: &Visit, shielded: bool) -> Result<Active> {
        let _waits = self.watch.as_ref().map(|watch| watch.waits(asks));
        let (mut parked, mut barrier) = (None, Barrier::default());
        // All of it each time: while it waits for one thing, another may have changed.
        let began = poll_fn(|cx| {
            let mut state = self.lock();
            // Before the replay is over too: what a run that is asked to end has not begun, it did not begin then either.
            if let (Some((reason, _)), false) = (state.ledger.cancelling(), shielded) {
                return Poll::Ready(Err(Fail::cancelled(reason)));
            }
            ready!(state.poll_live(cx, Some(asks), &mut parked));
            ready!(state.poll_durable(cx, &mut barrier));
            state.active += 1;
            Poll::Ready(Ok(()))
        });
        began.await.map(|()| Active(self.clone()))
    }

    pub(crate) fn check_cancelled(&self, shielded: bool) -> Result<()> {
        match self.lock().ledger.cancelling() {
            Some((reason, _)) if !shielded => Err(Fail::cancelled(reason)),
            _ => Ok(()),
        }
    }

    /// Waits durably, for input or a time or both: the run needs no node meanwhile. `check` is asked whenever it may
    /// be over, and may record.
    pub(crate) async fn wait<T>(
        &self,
        asks: &Visit,
        shielded: bool,
        (on, due): (Option<On>, Option<Time>),
        mut check: impl FnMut(&mut State, Time) -> Option<T>,
    ) -> Result<T> {
        if self.lock().phase != Phase::Live {
            // A wait that has no recorded end was ended by the cancel, and what followed may be recorded.
            self.check_cancelled(shielded)?;
        }
        self.live(Some(asks)).await;
        let mut place = Place { cell: self, id: None };
        poll_fn(|cx| {
            let now = self.core.now();
            let mut state = self.lock();
            if state.held > 0 {
                // It goes on nowhere: it has lost a race.
                return Poll::Pending;
            }
            if state.phase != Phase::Live || !state.may_act() {
                // The engine stops and the wait goes on elsewhere; or the run rests, and is not claimed again yet.
                state.early.push(cx.waker().clone());
                return Poll::Pending;
            }
            if let Some(over) = check(&mut state, now) {
                return Poll::Ready(Ok(over));
            }
            if let (Some((reason, _)), false) = (state.ledger.cancelling(), shielded) {
                return Poll::Ready(Err(Fail::cancelled(reason)));
            }
            match place.id {
                Some(id) => state.waits.renew(id, cx.waker()),
                None => place.id = Some(state.waits.enter(on.clone(), due, cx.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the run has left memory, or rests: then others may end it as well.
    pub(crate) async fn over(&self) -> Over {
        poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(over) = &state.over {
                return Poll::Ready(over.clone());
            }
            if state.resting {
                return Poll::Ready(Over::Gone);
            }
            state.listeners.retain(|waker| !waker.will_wake(cx.waker()));
            state.listeners.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    pub(super) fn rest(&self) {
        self.tell(|state| state.resting = true);
    }

    pub(super) fn set_over(&self, over: Over) {
        self.stopped.store(true, Ordering::Relaxed);
        self.tell(|state| state.over = Some(over));
    }

    /// Changes what those who wait for the end look at, and lets them look.
    fn tell(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        listeners.into_iter().for_each(Waker::wake);
    }

    /// Notes a wish that the run should end, if there is one that can be noted now.
    pub(super) fn note_cancel(&self) {
        let mut state = self.lock();
        // A run that is being put to rest notes it when it is claimed again.
        let open = state.phase == Phase::Live && state.ledger.run().status() == Status::Running;
        while let Some(wish) = open.then(|| state.inbox.cancel()).flatten() {
            let entry = match state.ledger.cancelling() {
                None => Entry::Cancelling { arrival: wish.arrival, reason: wish.reason, by: wish.by },
                Some(_) => Entry::Noted { arrival: wish.arrival },
            };
            state.record(entry);
            self.stopped.store(true, Ordering::Relaxed);
            state.waits.wake_all();
        }
    }

    /// Opens a hook, now or when the replay is over.
    pub(crate) fn open_hook(&self, hook: &Visit, token: &Token) {
        let mut state = self.lock();
        match state.ledger.record_at(hook) {
            None | Some(Record::Hook { state: HookState::Released(_), .. }) => {
                state.defer(Deferred::Open(hook.clone(), token.clone()));
            }
            Some(Record::Hook { token: recorded, .. }) if recorded == token => {}
            Some(_) => state.diverge(format!("`{hook}` is not the hook that the ledger has there")),
        }
        drop(state);
        self.signal.nudge();
    }

    /// Closes a hook that the workflow has dropped or disposed of.
    pub(crate) fn close_hook(&self, hook: &Visit) {
        let mut state = self.lock();
        if !state.torn {
            state.defer(Deferred::Close(hook.clone()));
        }
        drop(state);
        self.signal.nudge();
    }
}

impl State {
    pub(crate) fn record(&mut self, entry: Entry) {
        if let Err(refused) = self.ledger.record(entry) {
            self.diverge(refused.to_string());
        }
    }

    /// The code does not fit the ledger. The first reason is the one that counts.
    pub(crate) fn diverge(&mut self, why: String) {
        self.diverged.get_or_insert(why);
    }

    fn poll_live(&mut self, cx: &Context<'_>, asks: Option<&Visit>, parked: &mut Option<Waker>) -> Poll<()> {
        if self.held > 0 {
            return Poll::Pending;
        }
        if self.phase == Phase::Replaying && self.unvisited == 0 {
            self.go_live();
        }
        if self.phase == Phase::Live && !self.may_act() {
            self.early.push(cx.waker().clone());
            return Poll::Pending;
        }
        if self.phase == Phase::Live {
            return Poll::Ready(());
        }
        if parked.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *parked = Some(cx.waker().clone());
            self.parked.push(Parked { asks: asks.cloned(), waker: cx.waker().clone() });
        }
        Poll::Pending
    }

    fn poll_durable(&mut self, cx: &Context<'_>, barrier: &mut Barrier) -> Poll<()> {
        let version = *barrier.version.get_or_insert(self.ledger.run().state.version);
        if self.durable >= version {
            return Poll::Ready(());
        }
        if barrier.registered.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.barriers.push((version, cx.waker().clone()));
            barrier.registered = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether the workflow may do something now: the run is claimed, and its execution was not given up.
    pub(super) fn may_act(&self) -> bool {
        self.ledger.run().status() == Status::Running && !self.torn
    }

    fn go_live(&mut self) {
        self.phase = Phase::Live;
        for deferred in std::mem::take(&mut self.deferred) {
            self.defer(deferred);
        }
        self.parked.drain(..).for_each(|parked| parked.waker.wake());
    }

    fn defer(&mut self, deferred: Deferred) {
        if self.phase == Phase::Replaying && self.unvisited == 0 {
            self.go_live();
        }
        if self.phase != Phase::Live {
            self.deferred.push(deferred);
            return;
        }
        let hook_state = |state: &Self, hook: &Visit| match state.ledger.record_at(hook) {
            Some(Record::Hook { state, .. }) => Some(std::mem::discriminant(state)),
            _ => None,
        };
        let done = match deferred {
            Deferred::Open(hook, token) => self.ledger.open_hook(hook, token),
            Deferred::Close(hook)
                if hook_state(self, &hook) == Some(std::mem::discriminant(&HookState::Open(Vec::new()))) =>
            {
                self.ledger.record(Entry::HookClosed { hook })
            }
            // Asked for and not answered yet: closed as soon as it is open.
            Deferred::Close(hook)
                if hook_state(self, &hook)
                    == Some(std::mem::discriminant(&HookState::Opening(Vec::new()))) =>
            {
                self.deferred.push(Deferred::Close(hook));
                Ok(())
            }
            Deferred::Close(_) => Ok(()),
        };
        if let Err(refused) = done {
            self.diverge(refused.to_string());
        }
    }

    /// Everything up to this version is durable.
    pub(super) fn saved(&mut self, version: u64, settled: &[Entry]) {
        if let Err(refused) = self.ledger.settle(settled) {
            self.diverge(refused.to_string());
        }
        self.durable = version;
        self.barriers.retain(|(until, waker)| {
            let waits = *until > version;
            if !waits {
                waker.wake_by_ref();
            }
            waits
        });
        if settled.iter().any(|entry| matches!(entry, Entry::ChildStarted { attached: true, .. })) {
            // It may have ended long ago.
            self.orders.look = true;
        }
        if !settled.is_empty() && self.ledger.run().status() == Status::Running {
            // Hooks and children that were asked for are there now.
            for deferred in std::mem::take(&mut self.deferred) {
                self.defer(deferred);
            }
            self.waits.wake_all();
        }
    }

    /// Takes in what has arrived, and lets those go on who wait for it.
    pub(super) fn take_in(&mut self, arrivals: Vec<Arrival>) {
        for on in self.inbox.take_in(arrivals) {
            self.waits.wake_on(&on);
        }
        self.ledger.saw_arrivals(self.inbox.seen());
    }

    /// A run that rested in memory goes on.
    pub(super) fn claimed(&mut self, claimed: Claimed) {
        if let Err(refused) = self.ledger.claimed(claimed.run) {
            self.diverge(refused.to_string());
        }
        self.durable = self.ledger.run().state.version;
        self.resting = false;
        self.early.drain(..).for_each(Waker::wake);
        self.take_in(claimed.inbox);
    }

    /// The workflow has gone as far as it can. If it has come by everything that is recorded, it may do new things now;
    /// if not, it never will.
    pub(super) fn end_replay(&mut self) {
        if self.phase != Phase::Replaying {
            return;
        }
        if self.unvisited == 0 {
            self.go_live();
        } else if self.diverged.is_none() {
            let missing = self.missing();
            let asked: Vec<String> = self
                .parked
                .iter()
                .filter_map(|parked| parked.asks.as_ref().map(|v| format!("`{v}`")))
                .collect();
            let instead = match asked.as_slice() {
                [] => "the code ends without it".to_owned(),
                asked => format!("the code asks for {} instead", asked.join(", ")),
            };
            self.diverge(format!(
                "{} in the ledger and {instead}: was a step renamed, removed or moved?",
                match missing.as_slice() {
                    [one] => format!("`{one}` is"),
                    several => format!(
                        "{} are",
                        several.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", ")
                    ),
                }
            ));
        }
    }

    /// What is recorded and was not come by, in order of the paths.
    pub(super) fn missing(&self) -> Vec<Visit> {
        let missed = |visit: &&Visit| !self.visits.include(visit) && !self.ledger.is_carried(visit);
        let mut missing: Vec<Visit> =
            self.ledger.records().map(|(visit, _)| visit).filter(missed).cloned().collect();
        missing.sort();
        missing
    }

    /// Whether the workflow is about to be said to have gone as far as it can: it rests, or it stopped short of something.
    pub(super) fn seems_done(&self) -> bool {
        match self.phase {
            Phase::Replaying => self.unvisited > 0,
            _ => self.only_waits(),
        }
    }

    /// Whether nothing goes on but durable waits.
    pub(super) fn only_waits(&self) -> bool {
        // A hook that is dropped before it is open is closed when it is: the run must not rest before that.
        let hooks_done = self.deferred.is_empty();
        self.phase == Phase::Live
            && self.active == 0
            && !self.has_barriers()
            && hooks_done
            && !self.waits.is_empty()
    }

    pub(super) fn has_barriers(&self) -> bool {
        !self.barriers.is_empty()
    }
}

/// Nothing new is done.
pub(crate) struct Hold<'a>(&'a Cell);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
    }
}

/// An effect that is under way.
pub(crate) struct Active(Arc<Cell>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.lock().active -= 1;
        self.0.signal.nudge();
    }
}

/// A place among the waits, given up when its owner goes on or is dropped.
struct Place<'a> {
    cell: &'a Cell,
    id: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.cell.lock().waits.leave(id);
        }
    }
}
