//! The folds of runs that workers drive. A commit is only made by a ledger, which has checked its entries against all that
//! came before; so the server keeps the ledger of such a run, and a step costs no read of its history.
//!
//! Nothing here is the truth. A fold that is missing or behind is read from the store; one that may be ahead of it, because
//! a commit was refused or not answered, is dropped.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::id::{NodeId, RunId};
use semel::rules::claim::Held;
use semel::rules::ledger::Ledger;
use semel::rules::run::Run;

/// The memory that folds may take, roughly. Beyond it those that were used longest ago are dropped.
const BYTES: usize = 128 * 1024 * 1024;
/// Nobody drives more at once.
const MOST: usize = 200_000;

/// The place of one run's fold. Whoever holds it works on the run: commits of one run come one after the other.
pub(super) type Place = tokio::sync::Mutex<Option<Ledger>>;

/// All folds.
#[derive(Default)]
pub(super) struct Folds(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    runs: HashMap<RunId, Kept>,
    /// By their numbers, the runs that their drivers have put to rest: version and driver.
    resting: HashMap<i64, (u64, NodeId)>,
    /// In the order of use; what was used again since is skipped.
    order: VecDeque<(RunId, u64)>,
    uses: u64,
    weight: usize,
}

struct Kept {
    place: Arc<Place>,
    num: Option<i64>,
    used: u64,
    weight: usize,
}

impl Folds {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Every change is a few map operations that do not panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a run's fold; it may be empty.
    pub(super) fn place(&self, run: RunId) -> Arc<Place> {
        self.lock().touch(run).place.clone()
    }

    /// A fold was put into its place, or has changed there. With `rests`, its driver has put the run to rest.
    pub(super) fn changed(&self, ledger: &Ledger, rests: Option<NodeId>) {
        let (run, version, weight) = (ledger.run(), ledger.run().state.version, ledger.weight());
        let mut tables = self.lock();
        match rests {
            Some(node) => drop(tables.resting.insert(run.num, (version, node))),
            None => drop(tables.resting.remove(&run.num)),
        }
        let kept = tables.touch(run.id());
        kept.num = Some(run.num);
        let before = std::mem::replace(&mut kept.weight, weight);
        tables.weight = tables.weight - before + weight;
        tables.trim(BYTES, MOST);
    }

    /// Nobody needs the fold of a run any more.
    pub(super) fn drop_run(&self, run: RunId) {
        self.lock().forget(run);
    }

    /// A run was claimed and its whole ledger is there.
    pub(super) fn claimed(&self, ledger: Ledger) {
        let place = self.place(ledger.run().id());
        // If somebody works on it, they have lost the run by this claim, and drop what they have.
        if let Ok(mut fold) = place.try_lock() {
            self.changed(&ledger, None);
            *fold = Some(ledger);
        }
    }

    /// A resting run was claimed again by the driver that has it in memory, and so have we.
    pub(super) fn resumed(&self, run: &Run) {
        let place = self.place(run.id());
        let Ok(mut fold) = place.try_lock() else { return };
        let Some(mut ledger) = fold.take() else { return };
        // One that does not fit is behind: it is read anew when it is needed.
        if ledger.run().state.version + 1 == run.state.version && ledger.claimed(run.clone()).is_ok() {
            self.changed(&ledger, None);
            *fold = Some(ledger);
        }
    }

    fn rests_with(&self, num: i64, version: u64, node: NodeId) -> bool {
        self.lock().resting.get(&num) == Some(&(version, node))
    }
}

impl Tables {
    fn touch(&mut self, run: RunId) -> &mut Kept {
        self.uses += 1;
        let used = self.uses;
        self.order.push_back((run, used));
        if self.order.len() > 2 * self.runs.len() + 1024 {
            let runs = &self.runs;
            self.order.retain(|(run, at)| *at == used || runs.get(run).is_some_and(|kept| kept.used == *at));
        }
        let kept = self.runs.entry(run).or_insert_with(|| Kept {
            place: Arc::default(),
            num: None,
            used,
            weight: 0,
        });
        kept.used = used;
        kept
    }

    fn forget(&mut self, run: RunId) {
        if let Some(kept) = self.runs.remove(&run) {
            self.weight -= kept.weight;
            if let Some(num) = kept.num {
                self.resting.remove(&num);
            }
        }
    }

    /// Drops what was used longest ago, until all fits.
    fn trim(&mut self, bytes: usize, most: usize) {
        while self.weight > bytes || self.runs.len() > most {
            let Some((run, at)) = self.order.pop_front() else { return };
            if self.runs.get(&run).is_some_and(|kept| kept.used == at) {
                self.forget(run);
            }
        }
    }
}

/// The runs that a worker has put to rest, and has in memory for all we know.
pub(super) struct RestingWith {
    pub(super) workers: Arc<super::Workers>,
    pub(super) node: NodeId,
}

impl fmt::Debug for RestingWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RestingWith").field(&self.node).finish()
    }
}

impl Held for RestingWith {
    fn holds(&self, num: i64, version: u64) -> bool {
        self.workers.folds.rests_with(num, version, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn run(n: u128) -> RunId {
        RunId(Uuid::from_u128(n))
    }

    #[test]
    fn what_was_used_longest_ago_is_dropped_first() {
        let mut tables = Tables::default();
        for n in 1..=3 {
            tables.touch(run(n)).weight = 10;
            tables.weight += 10;
        }
        tables.touch(run(1));
        tables.trim(20, 100);
        let mut left: Vec<_> = tables.runs.keys().copied().collect();
        left.sort_unstable();
        assert_eq!((left, tables.weight), (vec![run(1), run(3)], 20));
        tables.trim(100, 1);
        assert!(tables.runs.contains_key(&run(1)), "the one that was used last");
    }

    #[test]
    fn the_order_of_use_does_not_grow_with_the_uses() {
        let mut tables = Tables::default();
        for _ in 0..100_000 {
            tables.touch(run(1));
        }
        assert!(tables.order.len() < 2_000, "{}", tables.order.len());
    }
}
