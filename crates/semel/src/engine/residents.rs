//! The runs in memory: driven ones, and resting ones that may be dropped to make room.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::run::Cell;
use crate::id::RunId;
use crate::map::Map;
use crate::rules::claim::HeldRuns;
use crate::store::Claimed;

struct Resting {
    version: u64,
    weight: usize,
    cell: Arc<Cell>,
}

#[derive(Default)]
struct ResidentTables {
    all: Map<RunId, Arc<Cell>>,
    resting: HashMap<i64, Resting>,
    /// Resting runs, longest at rest first; those that have gone on since are skipped.
    order: VecDeque<(i64, u64)>,
    weight: usize,
    kin: HashMap<Kin, Vec<RunId>>,
    /// Runs that are being started with this engine's claim, and whether other news of them arrived meanwhile.
    starting: Map<RunId, bool>,
    /// Tasks that wait for the end of a run that is not in memory.
    ends: HashMap<RunId, Arc<Notify>>,
}

/// A relation to something that concerns other runs in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kin {
    /// A parent or a child: its end is in the inbox of the others.
    Run(RunId),
    /// The once whose result other runs wait for.
    Once,
}

/// All runs in memory.
pub(crate) struct Residents {
    tables: Mutex<ResidentTables>,
    /// Number of used slots for driven runs.
    taken: AtomicUsize,
    /// Number of slots for driven runs.
    slots: usize,
    /// Whether the next freed slot is a reason to look for due runs: the latest claim found no slot, or found runs.
    wanted: AtomicBool,
}

impl fmt::Debug for Residents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Residents({} of {})", self.taken.load(Ordering::Relaxed), self.slots)
    }
}

impl HeldRuns for Residents {
    fn holds(&self, num: i64, version: u64) -> bool {
        self.lock().resting.get(&num).is_some_and(|resting| resting.version == version)
    }
}

impl Residents {
    pub(super) fn new(slots: usize) -> Self {
        Self { tables: Mutex::default(), taken: AtomicUsize::new(0), slots, wanted: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, ResidentTables> {
        // Every change is a single call that cannot panic half-way.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves up to `wanted` slots for driven runs; returns how many.
    pub(super) fn reserve(&self, wanted: usize) -> usize {
        let granted = |taken: usize| wanted.min(self.slots.saturating_sub(taken));
        let before =
            self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| Some(taken + granted(taken)));
        before.map_or(0, granted)
    }

    /// Like [`reserve`](Self::reserve), for a claim: if there is no slot, [`free`](Self::free) says when to try
    /// again.
    pub(super) fn reserve_or_wait(&self, slots: usize) -> usize {
        // Set first, so that a slot that is freed in between is reported.
        self.want();
        let granted = self.reserve(slots);
        if granted > 0 {
            self.wanted.store(false, Ordering::SeqCst);
        }
        granted
    }

    /// The next freed slot is a reason to look for due runs, even if there is room: more may be due.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Frees a slot. Returns whether that is a reason to look for due runs.
    #[must_use = "the scheduler has no other way to learn of it"]
    pub(super) fn free(&self) -> bool {
        self.free_many(1);
        self.wanted.swap(false, Ordering::SeqCst)
    }

    /// Frees slots that were reserved for claims and not used.
    pub(super) fn free_many(&self, slots: usize) {
        self.taken.fetch_sub(slots, Ordering::SeqCst);
    }

    /// A run enters memory. An earlier claim of it that is still here is lost.
    pub(super) fn enter(&self, cell: &Arc<Cell>) {
        let mut tables = self.lock();
        tables.touch(cell.id);
        tables.drop_resting(cell.num);
        if let Some(before) = tables.all.insert(cell.id, cell.clone()) {
            before.order(|orders| orders.lost = true);
        }
    }

    /// A run is being started here, with this engine's claim.
    pub(super) fn starts(self: &Arc<Self>, run: RunId) -> Starting {
        self.lock().starting.insert(run, false);
        Starting { residents: self.clone(), run }
    }

    /// The run was taken from its owner, or has been claimed again. If it is being started here, the answer to the
    /// start may be older than that.
    pub(super) fn touch(&self, run: RunId) {
        self.lock().touch(run);
    }

    /// A run that was just started enters memory. At the same moment it stops counting as being started: whatever
    /// takes it away from now on finds it here.
    pub(super) fn enter_started(&self, cell: &Arc<Cell>) -> Entered {
        let mut tables = self.lock();
        let touched = tables.starting.remove(&cell.id).unwrap_or(true);
        if tables.all.contains_key(&cell.id) {
            return Entered::IsHere;
        }
        tables.all.insert(cell.id, cell.clone());
        if touched { Entered::Touched } else { Entered::Fresh }
    }

    /// Adds a run that rests now. If there is too little room, those that have rested longest leave memory.
    pub(super) fn rest(&self, cell: &Arc<Cell>, version: u64, weight: usize, bytes: usize, most: usize) {
        let mut tables = self.lock();
        if !tables.all.get(&cell.id).is_some_and(|here| Arc::ptr_eq(here, cell)) {
            return;
        }
        tables.order.push_back((cell.num, version));
        tables.weight += weight;
        tables.resting.insert(cell.num, Resting { version, weight, cell: cell.clone() });
        while tables.weight > bytes || tables.resting.len() > most {
            let Some((num, version)) = tables.order.pop_front() else { return };
            if tables.resting.get(&num).is_some_and(|resting| resting.version == version)
                && let Some(evicted) = tables.drop_resting(num)
            {
                evicted.order(|orders| orders.evicted = true);
            }
        }
        tables.trim();
    }

    /// Hands a claimed run to its driver; returns the claim if the driver is gone.
    pub(super) fn wake(&self, claimed: Box<Claimed>) -> Result<(), Box<Claimed>> {
        let mut tables = self.lock();
        match tables.drop_resting(claimed.run.num) {
            Some(cell) => {
                cell.hand_over(claimed);
                Ok(())
            }
            None => Err(claimed),
        }
    }

    /// A run leaves memory.
    pub(super) fn leave(&self, cell: &Arc<Cell>) {
        let mut tables = self.lock();
        if tables.all.get(&cell.id).is_some_and(|here| Arc::ptr_eq(here, cell)) {
            tables.all.remove(&cell.id);
        }
        if tables.resting.get(&cell.num).is_some_and(|here| Arc::ptr_eq(&here.cell, cell)) {
            tables.drop_resting(cell.num);
        }
    }

    pub(super) fn get(&self, run: RunId) -> Option<Arc<Cell>> {
        self.lock().all.get(&run).cloned()
    }

    /// Whether a run is in memory and rests.
    pub(super) fn rests(&self, cell: &Cell) -> bool {
        self.lock().resting.contains_key(&cell.num)
    }

    /// All runs in memory, in the order of their numbers in the store: they are notified in that order.
    pub(super) fn all(&self) -> Vec<Arc<Cell>> {
        let mut all: Vec<_> = self.lock().all.values().cloned().collect();
        all.sort_by_key(|cell| cell.num);
        all
    }

    /// Whether no slot is used and no cell has a driver.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0 && self.lock().all.is_empty()
    }

    /// Drops a resting run. From here on no claim relies on it: its driver may be gone before it learns of one.
    pub(super) fn evict(&self, run: RunId) {
        let mut tables = self.lock();
        tables.touch(run);
        let Some(num) = tables.all.get(&run).map(|cell| cell.num) else { return };
        if let Some(cell) = tables.drop_resting(num) {
            cell.order(|orders| orders.evicted = true);
        }
    }

    pub(super) fn lose_all(&self) {
        for cell in self.all() {
            self.evict(cell.id);
            cell.order(|orders| orders.lost = true);
        }
    }

    /// From now on `run` looks into its inbox when something happens to `kin`.
    pub(crate) fn relate(self: &Arc<Self>, run: RunId, kin: Kin) -> Related {
        self.lock().kin.entry(kin).or_default().push(run);
        Related { residents: self.clone(), run, kin }
    }

    pub(super) fn kin(&self, kin: Kin) -> Vec<RunId> {
        self.lock().kin.get(&kin).cloned().unwrap_or_default()
    }

    /// A notification for the end of a run.
    pub(super) fn end_of(&self, run: RunId) -> Arc<Notify> {
        let mut tables = self.lock();
        // Those without a waiting task are of no use.
        if tables.ends.len() > 1024 {
            tables.ends.retain(|_, end| Arc::strong_count(end) > 1);
        }
        tables.ends.entry(run).or_default().clone()
    }

    pub(super) fn ended(&self, run: RunId) {
        if let Some(end) = self.lock().ends.remove(&run) {
            end.notify_waiters();
        }
    }

    pub(super) fn all_ended(&self) {
        let mut ends: Vec<_> = self.lock().ends.iter().map(|(run, end)| (*run, end.clone())).collect();
        ends.sort_by_key(|(run, _)| *run);
        for (_, end) in ends {
            end.notify_waiters();
        }
    }

    pub(super) fn clear(&self) {
        let tables = std::mem::take(&mut *self.lock());
        drop(tables);
    }
}

impl ResidentTables {
    fn touch(&mut self, run: RunId) {
        if let Some(touched) = self.starting.get_mut(&run) {
            *touched = true;
        }
    }

    fn drop_resting(&mut self, num: i64) -> Option<Arc<Cell>> {
        let resting = self.resting.remove(&num)?;
        self.weight -= resting.weight;
        Some(resting.cell)
    }

    /// Removes entries of runs that have gone on, once they are the majority.
    fn trim(&mut self) {
        if self.order.len() > 64 + 2 * self.resting.len() {
            let resting = &self.resting;
            self.order.retain(|(num, version)| resting.get(num).is_some_and(|r| r.version == *version));
        }
    }
}

/// How a run that was just started entered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// The answer to its start is the only news of it.
    Fresh,
    /// Other news of it arrived meanwhile: the claim with which it was started may be over.
    Touched,
    /// It did not enter: a later claim of it is in memory.
    IsHere,
}

/// Marks that a run is being started, until this is dropped or the run [has entered](Residents::enter_started).
#[derive(Debug)]
pub(super) struct Starting {
    residents: Arc<Residents>,
    run: RunId,
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.residents.lock().starting.remove(&self.run);
    }
}

/// A relation that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Related {
    residents: Arc<Residents>,
    run: RunId,
    kin: Kin,
}

impl Drop for Related {
    fn drop(&mut self) {
        let mut tables = self.residents.lock();
        if let Some(runs) = tables.kin.get_mut(&self.kin) {
            if let Some(here) = runs.iter().position(|run| *run == self.run) {
                runs.swap_remove(here);
            }
            if runs.is_empty() {
                tables.kin.remove(&self.kin);
            }
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
