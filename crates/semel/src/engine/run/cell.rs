//! State that a run's driver and its workflow code share while the run is in memory.
//!
//! The workflow's code asks, waits and records here; the driver makes the records durable and wakes what waited for
//! that. Two rules make effects safe:
//!
//! - *Replay first.* A rebuilt workflow is given its recorded results until it has visited all of them. New work
//!   waits meanwhile. If the workflow stops before it has visited all of them, the code no longer fits the ledger,
//!   and no effect begins.
//! - *Durable first.* A result is returned as soon as it is recorded, but before the next effect begins, everything
//!   that was recorded before is durable. So a run of n steps costs n commits, its end included.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

use super::signal::Signal;
use super::state::{CellState, Orders, Over, Phase};
use crate::engine::Core;
use crate::engine::replay::watch::ReplayObserver;
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::Entry;
use crate::rules::ledger::Ledger;
use crate::rules::status::Status;
use crate::store::{Arrival, Claimed};

/// One run in memory.
pub(crate) struct Cell {
    pub(in crate::engine) core: Arc<Core>,
    pub(crate) id: RunId,
    pub(crate) workspace: WorkspaceId,
    pub(in crate::engine) num: i64,
    pub(in crate::engine) signal: Signal,
    /// The run has ended or another node has it: bodies that check this stop early.
    lost: AtomicBool,
    /// The run was asked to end: bodies that check this stop early, except those of its clean-up.
    asked_to_end: AtomicBool,
    /// Observes the code during a dry replay; none in a normal execution.
    pub(in crate::engine) watch: Option<ReplayObserver>,
    state: Mutex<CellState>,
}

/// Thousands are created per second. Up to a kilobyte, with the counts of the `Arc`, allocators are fast.
#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
const _: () = assert!(size_of::<Cell>() <= 984, "put what few runs have into a box");

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.id)
    }
}

impl Cell {
    pub(in crate::engine) fn new(
        core: Arc<Core>,
        ledger: Ledger,
        arrivals: Vec<Arrival>,
        dry: bool,
    ) -> Arc<Self> {
        let run = ledger.run();
        let (id, num, workspace) = (run.id(), run.num, run.new.workspace);
        let asked_to_end = AtomicBool::new(ledger.cancelling().is_some());
        let state = Mutex::new(CellState::new(ledger, arrivals, dry));
        let (signal, watch) = (Signal::default(), dry.then(ReplayObserver::default));
        let lost = AtomicBool::new(false);
        Arc::new(Self { core, id, workspace, num, signal, lost, asked_to_end, watch, state })
    }

    pub(in crate::engine) fn lock(&self) -> MutexGuard<'_, CellState> {
        // No panic can leave the state half changed: every change is a single call.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run has ended or another node has it.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the run was asked to end.
    pub(crate) fn is_asked_to_end(&self) -> bool {
        self.asked_to_end.load(Ordering::Relaxed)
    }

    /// Gives the driver an order.
    pub(in crate::engine) fn order(&self, order: impl FnOnce(&mut Orders)) {
        self.change(|state| order(&mut state.orders));
    }

    /// Version of this engine's present or latest claim on the run. Questions to the store about the run name it.
    pub(in crate::engine) fn claim(&self) -> u64 {
        self.lock().claim()
    }

    /// Marks that claim as lost. The answer that says so may be late, so a later claim is not affected.
    pub(in crate::engine) fn lose(&self, claim: u64) {
        self.change(|state| state.orders.lost |= state.claim() == claim);
    }

    /// The run was taken away at this version: claims from before are lost. Returns whether this engine's claim is
    /// one of them.
    pub(in crate::engine) fn lose_before(&self, version: u64) -> bool {
        let mut lost = false;
        self.change(|state| {
            lost = state.claim() < version;
            state.orders.lost |= lost;
        });
        lost
    }

    /// Hands the next claim of a resting run to its driver. News about earlier claims does not affect it.
    pub(in crate::engine) fn hand_over(&self, claimed: Box<Claimed>) {
        let mut state = self.lock();
        state.orders.claimed = Some(claimed);
        state.orders.lost = false;
        self.lost.store(false, Ordering::Relaxed);
        drop(state);
        self.signal.nudge();
    }

    /// Whether the run rests here as it is in the store at this version, so that there is no claim to lose.
    pub(in crate::engine) fn rests_at(&self, version: u64) -> bool {
        let state = self.lock();
        state.resting && state.orders.claimed.is_none() && state.ledger.run().state.version == version
    }

    fn change(&self, change: impl FnOnce(&mut CellState)) {
        let mut state = self.lock();
        change(&mut state);
        if state.orders.lost {
            self.lost.store(true, Ordering::Relaxed);
        }
        drop(state);
        self.signal.nudge();
    }

    /// Wakes the driver, so that it sees a change.
    pub(crate) fn nudge(&self) {
        self.signal.nudge();
    }

    /// Waits until the run has left memory or rests: then other nodes may end it as well.
    pub(in crate::engine) async fn over(&self) -> Over {
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

    pub(in crate::engine) fn rest(&self) {
        self.tell(|state| state.resting = true);
    }

    pub(in crate::engine) fn set_over(&self, over: Over) {
        self.lost.store(true, Ordering::Relaxed);
        self.tell(|state| state.over = Some(over));
    }

    /// Changes what tasks that wait for the end look at, and wakes them.
    fn tell(&self, change: impl FnOnce(&mut CellState)) {
        let mut state = self.lock();
        change(&mut state);
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        listeners.into_iter().for_each(Waker::wake);
    }

    /// Records messages from operators, if that is possible now: a requested cancel, the release of the key.
    pub(in crate::engine) fn note_operators(&self) {
        let mut state = self.lock();
        // A run that is being put to rest records them when it is claimed again.
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
}

/// The cell is also the waker of its workflow: one pointer less to follow in every turn.
impl Wake for Cell {
    fn wake(self: Arc<Self>) {
        self.signal.woken();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal.woken();
    }
}

/// The waker with which a workflow is polled. Dropping it also drops the copies that waiting futures have left in the
/// cell, each of which keeps the cell in memory.
pub(in crate::engine) struct Caller {
    cell: Arc<Cell>,
    waker: Waker,
}

impl Caller {
    pub(in crate::engine) fn new(cell: Arc<Cell>) -> Self {
        Self { waker: Waker::from(cell.clone()), cell }
    }

    pub(in crate::engine) fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let wakers = self.cell.lock().let_go();
        // Outside the lock: dropping a waker may call foreign code.
        drop(wakers);
    }
}
