//! The runs in memory: those that are driven, and those that rest and may be dropped for others.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::cell::Cell;
use crate::id::RunId;
use crate::map::Map;
use crate::rules::claim::Held;
use crate::store::Claimed;

struct Resting {
    version: u64,
    weight: usize,
    cell: Arc<Cell>,
}

#[derive(Default)]
struct Tables {
    all: Map<RunId, Arc<Cell>>,
    resting: HashMap<i64, Resting>,
    /// In the order in which they came to rest; those that have gone on since are skipped.
    order: VecDeque<(i64, u64)>,
    weight: usize,
    kin: HashMap<Kin, Vec<RunId>>,
    /// Runs that are being started with this engine's claim, and whether something else was heard of them meanwhile.
    starting: Map<RunId, bool>,
    /// Who waits for the end of a run that is not here.
    ends: HashMap<RunId, Arc<Notify>>,
}

/// Whose affairs concern other runs in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kin {
    /// A parent or a child: its end is in the inbox of the others.
    Run(RunId),
    /// Whoever makes the result that others wait for.
    Once,
}

/// All runs in memory.
pub(crate) struct Residents {
    tables: Mutex<Tables>,
    /// Places for driven runs that are taken.
    taken: AtomicUsize,
    places: usize,
    /// Whether the next one that is free is worth a look for due runs: whoever claimed last has found no place, or something.
    wanted: AtomicBool,
}

impl fmt::Debug for Residents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Residents({} of {})", self.taken.load(Ordering::Relaxed), self.places)
    }
}

impl Held for Residents {
    fn holds(&self, num: i64, version: u64) -> bool {
        self.lock().resting.get(&num).is_some_and(|resting| resting.version == version)
    }
}

impl Residents {
    pub(super) fn new(places: usize) -> Self {
        Self { tables: Mutex::default(), taken: AtomicUsize::new(0), places, wanted: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Every change is a single call that cannot panic half-way.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up to so many places for runs to be driven; gives how many.
    pub(super) fn reserve(&self, wanted: usize) -> usize {
        let granted = |taken: usize| wanted.min(self.places.saturating_sub(taken));
        let before =
            self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| Some(taken + granted(taken)));
        before.map_or(0, granted)
    }

    /// The same for whoever claims: if there is none, [`free`](Self::free) says when to ask again.
    pub(super) fn reserve_or_wait(&self, places: usize) -> usize {
        // First: of a place that is freed in between somebody must hear.
        self.want();
        let granted = self.reserve(places);
        if granted > 0 {
            self.wanted.store(false, Ordering::SeqCst);
        }
        granted
    }

    /// The next place that is free is worth a look, also if there is room: there may be more where something was due.
    pub(super) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Gives a place back. Whether that is worth a look for due runs.
    #[must_use = "whoever claims is told of it by nobody else"]
    pub(super) fn free(&self) -> bool {
        self.free_many(1);
        self.wanted.swap(false, Ordering::SeqCst)
    }

    /// Gives back what was reserved for claims that found less.
    pub(super) fn free_many(&self, places: usize) {
        self.taken.fetch_sub(places, Ordering::SeqCst);
    }

    /// A run comes into memory. If an earlier claim of it is still here, that one is lost.
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

    /// The run was taken from whoever held it, or has been claimed again. If it is being started here, the answer to the
    /// start may be older than that.
    pub(super) fn touch(&self, run: RunId) {
        self.lock().touch(run);
    }

    /// A run that was just started comes into memory. In the same moment it is no longer being started: what takes it
    /// away from now on finds it here.
    pub(super) fn enter_started(&self, cell: &Arc<Cell>) -> Entered {
        let mut tables = self.lock();
        let touched = tables.starting.remove(&cell.id).unwrap_or(true);
        if tables.all.contains_key(&cell.id) {
            return Entered::IsHere;
        }
        tables.all.insert(cell.id, cell.clone());
        if touched { Entered::Touched } else { Entered::Fresh }
    }

    /// A run rests. The longest resting ones make room if there is too much.
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

    /// Hands a claimed run to its driver; gives it back if that is no longer there.
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

    /// Whether a run is here and rests.
    pub(super) fn rests(&self, cell: &Cell) -> bool {
        self.lock().resting.contains_key(&cell.num)
    }

    /// All of them, in the order in which the store has numbered them: whoever is told something is told in that order.
    pub(super) fn all(&self) -> Vec<Arc<Cell>> {
        let mut all: Vec<_> = self.lock().all.values().cloned().collect();
        all.sort_by_key(|cell| cell.num);
        all
    }

    /// Places that are taken, or cells that still have a driver.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.load(Ordering::SeqCst) == 0 && self.lock().all.is_empty()
    }

    /// Lets go of a run that rests. From here on no claim counts on it: its driver may be gone before it hears of one.
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

    /// From now on `run` is to look into its inbox when something happens to its kin.
    pub(crate) fn relate(self: &Arc<Self>, run: RunId, kin: Kin) -> Related {
        self.lock().kin.entry(kin).or_default().push(run);
        Related { residents: self.clone(), run, kin }
    }

    pub(super) fn kin(&self, kin: Kin) -> Vec<RunId> {
        self.lock().kin.get(&kin).cloned().unwrap_or_default()
    }

    /// Something to be told of the end of a run.
    pub(super) fn end_of(&self, run: RunId) -> Arc<Notify> {
        let mut tables = self.lock();
        // Those that nobody holds any more are of no use.
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

impl Tables {
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

    /// Forgets the places of those who have gone on, once they are most of what is remembered.
    fn trim(&mut self) {
        if self.order.len() > 64 + 2 * self.resting.len() {
            let resting = &self.resting;
            self.order.retain(|(num, version)| resting.get(num).is_some_and(|r| r.version == *version));
        }
    }
}

/// How a run that was just started came into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// Nothing was heard of it but the answer to its start.
    Fresh,
    /// Something else was heard of it meanwhile: the claim that it was started with may be over.
    Touched,
    /// It did not: a later claim of it is here.
    IsHere,
}

/// A run is being started until this is dropped, or until the run [has come](Residents::enter_started).
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
