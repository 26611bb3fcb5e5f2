//! Folds of runs that workers drive. A commit can only be made by a ledger, which checks the entries against
//! everything before them. The server therefore keeps the ledger of such a run, without its values, so that a step
//! needs no read of the history.
//!
//! The folds are a cache. A fold that is missing or behind is read from the store; one that may be ahead, because a
//! commit was refused or not answered, is dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::claim::HeldRuns;
use semel::rules::ledger::Ledger;
use semel::rules::run::Run;

use crate::bounded::{BoundedCache, Most};

/// Approximate memory for folds: some five million steps. Beyond it, the tenant with the most loses its least
/// recently used ones, so that no tenant evicts the folds of another.
const BYTES: usize = 128 * 1024 * 1024;
/// Maximum number of folds, more than workers drive at once.
const MOST: usize = 200_000;

/// Slot of one run's fold. Its lock serialises the commits of the run.
pub(super) type FoldSlot = tokio::sync::Mutex<Option<Ledger>>;

/// Folds of all tenants.
#[derive(Default)]
pub(super) struct Folds(Mutex<FoldTables>);

struct FoldTables {
    runs: BoundedCache<RunId, WorkspaceId, KeptFold>,
    /// Runs that their drivers have put to rest, by number: version and driver.
    resting: HashMap<i64, (u64, NodeId)>,
}

#[derive(Default)]
struct KeptFold {
    place: Arc<FoldSlot>,
    num: Option<i64>,
}

impl Default for FoldTables {
    fn default() -> Self {
        let most = Most { entries: MOST, weight: BYTES };
        Self { runs: BoundedCache::new(most), resting: HashMap::new() }
    }
}

impl Folds {
    fn lock(&self) -> MutexGuard<'_, FoldTables> {
        // Every change is a few map operations that do not panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of a run's fold for this tenant; it may be empty.
    pub(super) fn place(&self, run: RunId, tenant: WorkspaceId) -> Arc<FoldSlot> {
        self.lock().touch(run, tenant).place.clone()
    }

    /// Records that a fold was put into its slot or has changed. `rests` is the driver, if it has put the run to
    /// rest.
    pub(super) fn changed(&self, ledger: &Ledger, rests: Option<NodeId>) {
        let (run, version) = (ledger.run(), ledger.run().state.version);
        let mut tables = self.lock();
        match rests {
            Some(node) => drop(tables.resting.insert(run.num, (version, node))),
            None => drop(tables.resting.remove(&run.num)),
        }
        tables.touch(run.id(), run.new.workspace).num = Some(run.num);
        tables.runs.weigh(&run.id(), ledger.weight());
        tables.trim();
    }

    /// Drops the fold of a run that is no longer needed.
    pub(super) fn drop_run(&self, run: RunId) {
        self.lock().forget(run);
    }

    /// Stores the fold of a run that was claimed with its whole ledger.
    pub(super) fn claimed(&self, ledger: Ledger) {
        let (place, ledger) = (self.place(ledger.run().id(), ledger.run().new.workspace), ledger.slim());
        // If the slot is locked, the lock's holder has lost the run by this claim and drops its fold.
        if let Ok(mut fold) = place.try_lock() {
            self.changed(&ledger, None);
            *fold = Some(ledger);
        }
    }

    /// Updates the fold of a resting run that its driver, which still has it in memory, has claimed again.
    pub(super) fn resumed(&self, run: &Run) {
        let place = self.place(run.id(), run.new.workspace);
        let Ok(mut fold) = place.try_lock() else { return };
        let Some(mut ledger) = fold.take() else { return };
        // A fold that does not fit is behind, and is read again when needed.
        if ledger.run().state.version + 1 == run.state.version && ledger.claimed(run.clone()).is_ok() {
            self.changed(&ledger, None);
            *fold = Some(ledger);
        }
    }

    fn rests_with(&self, num: i64, version: u64, node: NodeId) -> bool {
        self.lock().resting.get(&num) == Some(&(version, node))
    }
}

impl FoldTables {
    fn touch(&mut self, run: RunId, tenant: WorkspaceId) -> &mut KeptFold {
        self.runs.touch(run, tenant, KeptFold::default)
    }

    fn forget(&mut self, run: RunId) {
        let dropped = self.runs.remove(&run);
        self.forget_rest(dropped);
    }

    fn trim(&mut self) {
        let evicted = self.runs.trim();
        self.forget_rest(evicted);
    }

    fn forget_rest(&mut self, dropped: impl IntoIterator<Item = KeptFold>) {
        for num in dropped.into_iter().filter_map(|kept| kept.num) {
            self.resting.remove(&num);
        }
    }
}

/// The runs that a worker has put to rest and, as far as is known, still has in memory.
pub(super) struct RestingWith {
    pub(super) workers: Arc<super::Workers>,
    pub(super) node: NodeId,
}

impl fmt::Debug for RestingWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RestingWith").field(&self.node).finish()
    }
}

impl HeldRuns for RestingWith {
    fn holds(&self, num: i64, version: u64) -> bool {
        self.workers.folds.rests_with(num, version, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_run_whose_fold_is_dropped_rests_with_no_node() {
        let (run, node) = (RunId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let folds = Folds::default();
        let mut tables = folds.lock();
        tables.touch(run, WorkspaceId(Uuid::from_u128(3))).num = Some(7);
        tables.resting.insert(7, (4, node));
        drop(tables);
        assert!(folds.rests_with(7, 4, node) && !folds.rests_with(7, 5, node));
        folds.drop_run(run);
        assert!(!folds.rests_with(7, 4, node));
    }
}
