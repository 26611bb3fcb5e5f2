//! The folds of runs that workers drive. A commit is only made by a ledger, which has checked its entries against all that
//! came before; so the server keeps the ledger of such a run, without its values, and a step costs no read of its history.
//!
//! Nothing here is the truth. A fold that is missing or behind is read from the store; one that may be ahead of it, because
//! a commit was refused or not answered, is dropped.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::claim::Held;
use semel::rules::ledger::Ledger;
use semel::rules::run::Run;

/// The memory that folds may take, roughly: some five million steps. Beyond it the tenant with the most loses those that it
/// used longest ago, so that no tenant takes the folds of another.
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
    tenants: HashMap<WorkspaceId, Tenant>,
    uses: u64,
    weight: usize,
}

/// The folds of one tenant.
#[derive(Default)]
struct Tenant {
    /// In the order of use; what was used again since is skipped.
    order: VecDeque<(RunId, u64)>,
    runs: usize,
    weight: usize,
}

struct Kept {
    place: Arc<Place>,
    tenant: WorkspaceId,
    num: Option<i64>,
    used: u64,
    weight: usize,
}

impl Folds {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Every change is a few map operations that do not panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of the fold of a run that this tenant asks for; it may be empty.
    pub(super) fn place(&self, run: RunId, tenant: WorkspaceId) -> Arc<Place> {
        self.lock().touch(run, tenant).place.clone()
    }

    /// A fold was put into its place, or has changed there. With `rests`, its driver has put the run to rest.
    pub(super) fn changed(&self, ledger: &Ledger, rests: Option<NodeId>) {
        let (run, version) = (ledger.run(), ledger.run().state.version);
        let mut tables = self.lock();
        match rests {
            Some(node) => drop(tables.resting.insert(run.num, (version, node))),
            None => drop(tables.resting.remove(&run.num)),
        }
        tables.touch(run.id(), run.new.workspace).num = Some(run.num);
        tables.weigh(run.id(), ledger.weight());
        tables.trim(BYTES, MOST);
    }

    /// Nobody needs the fold of a run any more.
    pub(super) fn drop_run(&self, run: RunId) {
        self.lock().forget(run);
    }

    /// A run was claimed and its whole ledger is there.
    pub(super) fn claimed(&self, ledger: Ledger) {
        let (place, ledger) = (self.place(ledger.run().id(), ledger.run().new.workspace), ledger.slim());
        // If somebody works on it, they have lost the run by this claim, and drop what they have.
        if let Ok(mut fold) = place.try_lock() {
            self.changed(&ledger, None);
            *fold = Some(ledger);
        }
    }

    /// A resting run was claimed again by the driver that has it in memory, and so have we.
    pub(super) fn resumed(&self, run: &Run) {
        let place = self.place(run.id(), run.new.workspace);
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
    fn touch(&mut self, run: RunId, tenant: WorkspaceId) -> &mut Kept {
        self.uses += 1;
        let used = self.uses;
        let is_new = !self.runs.contains_key(&run);
        let new = || Kept { place: Arc::default(), tenant, num: None, used, weight: 0 };
        let kept = self.runs.entry(run).or_insert_with(new);
        kept.used = used;
        let tenant = self.tenants.entry(kept.tenant).or_default();
        tenant.runs += usize::from(is_new);
        tenant.order.push_back((run, used));
        if tenant.order.len() > 2 * tenant.runs + 1024 {
            let runs = &self.runs;
            tenant.order.retain(|(run, at)| runs.get(run).is_some_and(|kept| kept.used == *at));
        }
        self.runs.get_mut(&run).expect("just entered")
    }

    fn weigh(&mut self, run: RunId, weight: usize) {
        let Some(kept) = self.runs.get_mut(&run) else { return };
        let before = std::mem::replace(&mut kept.weight, weight);
        let tenant = self.tenants.entry(kept.tenant).or_default();
        tenant.weight = tenant.weight - before + weight;
        self.weight = self.weight - before + weight;
    }

    fn forget(&mut self, run: RunId) {
        let Some(kept) = self.runs.remove(&run) else { return };
        self.weight -= kept.weight;
        if let Some(num) = kept.num {
            self.resting.remove(&num);
        }
        if let Some(tenant) = self.tenants.get_mut(&kept.tenant) {
            (tenant.weight, tenant.runs) = (tenant.weight - kept.weight, tenant.runs - 1);
            if tenant.runs == 0 {
                self.tenants.remove(&kept.tenant);
            }
        }
    }

    /// Drops what the tenant with the most used longest ago, until all fits.
    fn trim(&mut self, bytes: usize, most: usize) {
        loop {
            let largest = if self.weight > bytes {
                self.tenants.values_mut().max_by_key(|tenant| tenant.weight)
            } else if self.runs.len() > most {
                self.tenants.values_mut().max_by_key(|tenant| tenant.runs)
            } else {
                return;
            };
            let Some((run, at)) = largest.and_then(|tenant| tenant.order.pop_front()) else { return };
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

    fn tenant(n: u128) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n))
    }

    fn left(tables: &Tables) -> Vec<RunId> {
        let mut left: Vec<_> = tables.runs.keys().copied().collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn what_was_used_longest_ago_is_dropped_first() {
        let mut tables = Tables::default();
        for n in 1..=3 {
            tables.touch(run(n), tenant(1));
            tables.weigh(run(n), 10);
        }
        tables.touch(run(1), tenant(1));
        tables.trim(20, 100);
        assert_eq!((left(&tables), tables.weight), (vec![run(1), run(3)], 20));
        tables.trim(100, 1);
        assert_eq!(left(&tables), [run(1)], "the one that was used last");
    }

    #[test]
    fn a_tenant_with_much_takes_no_fold_of_another() {
        let mut tables = Tables::default();
        tables.touch(run(1), tenant(1));
        tables.weigh(run(1), 10);
        for n in 2..100 {
            tables.touch(run(n), tenant(2));
            tables.weigh(run(n), 10);
            tables.trim(50, 1_000);
            assert!(tables.runs.contains_key(&run(1)), "after {n}");
        }
        assert_eq!(left(&tables), [1, 96, 97, 98, 99].map(run));
        for n in left(&tables) {
            tables.forget(n);
        }
        assert_eq!((tables.weight, tables.tenants.len()), (0, 0));
    }

    #[test]
    fn the_order_of_use_does_not_grow_with_the_uses() {
        let mut tables = Tables::default();
        for _ in 0..100_000 {
            tables.touch(run(1), tenant(1));
        }
        let order = tables.tenants[&tenant(1)].order.len();
        assert!(order < 2_000, "{order}");
    }
}
