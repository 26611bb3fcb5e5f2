//! What a run's driver and its workflow code share while the run is in memory.
//!
//! The workflow's code asks, waits and records here; the driver makes durable what was recorded and lets those go on
//! who waited for it. Two rules make effects safe:
//!
//! - *Replay first.* A rebuilt workflow is given its recorded results until it has come by all of them. What is new waits
//!   meanwhile. If it stops short of one, the code no longer fits the ledger, and no effect begins.
//! - *Durable first.* A result is handed on as soon as it is recorded, but before the next effect begins, everything that
//!   was recorded before is durable. So a run of n steps costs n commits, its end included.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker, ready};

use super::Core;
use super::inbox::On;
use super::replay::watch::{Asked, Place as At, Watch};
use super::signal::Signal;
use super::state::{Barrier, Deferred, Orders, Over, Phase, State};
use crate::clock::Time;
use crate::id::RunId;
use crate::rules::entry::{Class, Entry};
use crate::rules::key::{Label, Token};
use crate::rules::ledger::{HookState, Ledger, Record};
use crate::rules::path::{Path, Visit};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::sdk::fail::{Result, fatal};
use crate::store::{Arrival, Claimed};

/// One run in memory.
pub(crate) struct Cell {
    pub(crate) core: Arc<Core>,
    pub(crate) id: RunId,
    pub(super) num: i64,
    pub(super) signal: Signal,
    /// The run is somebody else's, or over: bodies that look stop early.
    lost: AtomicBool,
    /// It was asked to end: so do those, but for its clean-up.
    asked_to_end: AtomicBool,
    /// Looks on while the run is only looked at.
    pub(super) watch: Option<Watch>,
    state: Mutex<State>,
}

/// Thousands come and go in a second: up to a kilobyte, with the counts of its `Arc`, allocators have pieces at hand.
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
const _: () = assert!(size_of::<Cell>() <= 984, "put what few runs have into a box");

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.id)
    }
}

impl Cell {
    pub(super) fn new(core: Arc<Core>, ledger: Ledger, arrivals: Vec<Arrival>, dry: bool) -> Arc<Self> {
        let run = ledger.run();
        let (id, num) = (run.id(), run.num);
        let asked_to_end = AtomicBool::new(ledger.cancelling().is_some());
        let state = Mutex::new(State::new(ledger, arrivals, dry));
        let (signal, watch) = (Signal::default(), dry.then(Watch::default));
        Arc::new(Self { core, id, num, signal, lost: AtomicBool::new(false), asked_to_end, watch, state })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done by a panic: every change is a single call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run is somebody else's, or over.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the run was asked to end.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        self.asked_to_end.load(Ordering::Relaxed)
    }

    /// Gives the driver an order.
    pub(crate) fn order(&self, order: impl FnOnce(&mut Orders)) {
        self.change(|state| order(&mut state.orders));
    }

    /// The claim that this engine has on the run, or had last: what the store is asked about the run is asked for this one.
    pub(super) fn claim(&self) -> u64 {
        self.lock().claim()
    }

    /// That claim counts no more. The answer that says so may have come late: a later claim is another one.
    pub(super) fn lose(&self, claim: u64) {
        self.change(|state| state.orders.lost |= state.claim() == claim);
    }

    /// The run was taken away at this version: claims from before count no more. Gives whether this engine's is one of
    /// them.
    pub(super) fn lose_before(&self, version: u64) -> bool {
        let mut lost = false;
        self.change(|state| {
            lost = state.claim() < version;
            state.orders.lost |= lost;
        });
        lost
    }

    /// Hands the next claim of a resting run to its driver. What was said about earlier claims does not concern it.
    pub(super) fn hand_over(&self, claimed: Box<Claimed>) {
        let mut state = self.lock();
        state.orders.claimed = Some(claimed);
        state.orders.lost = false;
        self.lost.store(false, Ordering::Relaxed);
        drop(state);
        self.signal.nudge();
    }

    /// Whether the run rests here as it is in the store at this version: there is no claim to lose.
    pub(super) fn rests_at(&self, version: u64) -> bool {
        let state = self.lock();
        state.resting && state.orders.claimed.is_none() && state.ledger.run().state.version == version
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        if state.orders.lost {
            self.lost.store(true, Ordering::Relaxed);
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
        self.refuse_inside(&path)?;
        self.lock().visit(path, indexed).map_err(fatal)
    }

    /// Refuses what a body asks for. While the run goes on it would work, and after the first rebuild the ledger would have
    /// what the code never comes by.
    pub(crate) fn refuse_inside(&self, what: impl fmt::Display) -> Result<()> {
        if !self.is_inside() {
            return Ok(());
        }
        let why = format!(
            "`{what}` is asked for inside of the body of a step or a once, which is not called again once that has its \
             result: ask before it, and use the answer in it"
        );
        self.lock().diverge(why.clone());
        Err(fatal(why))
    }

    /// Whether this is asked by the body of an effect of this run.
    pub(crate) fn is_inside(&self) -> bool {
        INSIDE.get() == std::ptr::from_ref(self).addr()
    }

    /// The body of an effect is polled, here and now, until the guard is dropped.
    pub(crate) fn enter_body(&self) -> Inside {
        Inside(INSIDE.replace(std::ptr::from_ref(self).addr()))
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

    /// Waits until new things may be done. `asks` is what waits, to name it if that never comes.
    pub(crate) async fn live(&self, asks: Option<&Visit>) {
        let _waits = self.watch.as_ref().zip(asks).map(|(watch, asks)| watch.waits(asks));
        let mut parked = None;
        poll_fn(|cx| self.lock().poll_live(cx, asks, &mut parked)).await;
    }

    /// Waits until something new may be done, and does it: at once, before the run can be put to rest for other reasons.
    pub(crate) async fn live_then<T>(&self, asks: &Visit, act: impl FnOnce(&mut State) -> T) -> T {
        let _waits = self.watch.as_ref().map(|watch| watch.waits(asks));
        let (mut parked, mut act) = (None, Some(act));
        let done = poll_fn(|cx| {
            let mut state = self.lock();
            ready!(state.poll_live(cx, Some(asks), &mut parked));
            let act = act.take().expect("nobody polls what is over");
            Poll::Ready(act(&mut state))
        })
        .await;
        self.signal.nudge();
        done
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

    /// Waits until an effect may begin, and counts it until the guard is dropped. An attempt whose beginning has to be
    /// durable first is recorded here.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        asks: &Visit,
        shielded: bool,
        intent: Option<(u32, Class)>,
    ) -> Result<Active> {
        let _waits = self.watch.as_ref().map(|watch| watch.waits(asks));
        let (mut parked, mut barrier) = (None, Barrier::default());
        // All of it each time: while it waits for one thing, another may have changed.
        let began = poll_fn(|cx| {
            let mut state = self.lock();
            // Before the replay is over too: what a run that is asked to end has not begun, it did not begin then either.
            if let Err(cancelled) = state.check_cancelled(shielded) {
                return Poll::Ready(Err(cancelled));
            }
            ready!(state.poll_live(cx, Some(asks), &mut parked));
            if !sabotage::commits(Bug::EffectBeforeDurable) {
                ready!(state.poll_durable(cx, &mut barrier));
            }
            if let Some((attempt, class)) = intent {
                state.record(Entry::StepStarted { step: asks.clone(), attempt, class });
            }
            state.active += 1;
            Poll::Ready(Ok(()))
        });
        let active = began.await.map(|()| Active(self.clone()))?;
        if intent.is_some() && !sabotage::commits(Bug::IntentAfterBody) {
            self.signal.nudge();
            let mut written = Barrier::default();
            // On record, it begins: also if it turns out meanwhile that the code does not fit, for nobody would know.
            poll_fn(|cx| self.lock().poll_written(cx, &mut written)).await;
        }
        Ok(active)
    }

    pub(crate) fn check_cancelled(&self, shielded: bool) -> Result<()> {
        self.lock().check_cancelled(shielded)
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
                state.comes_early(cx.waker());
                return Poll::Pending;
            }
            if let Some(over) = check(&mut state, now) {
                return Poll::Ready(Ok(over));
            }
            if let Err(cancelled) = state.check_cancelled(shielded) {
                return Poll::Ready(Err(cancelled));
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
        self.lost.store(true, Ordering::Relaxed);
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

    /// Records what operators have put into the inbox, if it can be recorded now: a wish that the run should end, the
    /// release of its key.
    pub(super) fn note_operators(&self) {
        let mut state = self.lock();
        // A run that is being put to rest notes it when it is claimed again.
        let open = state.phase == Phase::Live && state.ledger.run().status() == Status::Running;
        while let Some(wish) = open.then(|| state.inbox.cancel()).flatten() {
            let entry = match state.ledger.cancelling() {
                None => Entry::Cancelling { arrival: wish.arrival, reason: wish.reason, by: wish.by },
                Some(_) => Entry::Noted { arrival: wish.arrival },
            };
            state.record(entry);
            self.asked_to_end.store(true, Ordering::Relaxed);
            state.waits.wake_all();
        }
        while let Some((arrival, by)) = open.then(|| state.inbox.release()).flatten() {
            state.record(Entry::KeyReleased { by, arrival: Some(arrival) });
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

/// A cell is what its workflow is woken through: one thing less to reach in every turn.
impl Wake for Cell {
    fn wake(self: Arc<Self>) {
        self.signal.woken();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal.woken();
    }
}

/// The waker that a workflow is polled with. With it go the copies that those who waited have left in the cell: each of them
/// keeps the cell in memory.
pub(super) struct Caller {
    cell: Arc<Cell>,
    waker: Waker,
}

impl Caller {
    pub(super) fn new(cell: Arc<Cell>) -> Self {
        Self { waker: Waker::from(cell.clone()), cell }
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let wakers = self.cell.lock().let_go();
        // Out of the lock: a waker may be anybody's.
        drop(wakers);
    }
}

thread_local! {
    /// Of which run a body is being polled on this thread: where its cell is, or nowhere. Not kept in the cell: steps may be
    /// polled by several threads at once, in tasks of their own.
    static INSIDE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A body is being polled; and inside of which one, if it is inside of another.
pub(crate) struct Inside(usize);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
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
        self.0.signal.ease();
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
