//! Claims that wait for a due run. They share one task, which asks the store when the earliest run of each awaited
//! workflow is due, and calls the claim that has waited longest. So a thousand idle workers cost one query at a time.
//!
//! A waiting claim counts as a heartbeat: the lease of its worker is renewed meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use semel::clock::Time;
use semel::error::Result;
use semel::id::WorkspaceId;
use semel::rules::claim::Drives;
use semel::store::Wake;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;

use super::Workers;
use super::request::ClaimRequest;
use crate::app::App;

/// Interval of unprompted looks: a wake-up from another process may have been lost.
const FLOOR: Duration = Duration::from_secs(1);
/// Maximum number of workflows in one query to the store.
const AT_ONCE: usize = 1_000;
/// Pause between two tries of a claim whose run is due by this clock, but not yet by the store's.
const CLOCKS: Duration = Duration::from_millis(20);

/// Result of one attempt to claim.
pub(super) struct ClaimTried<T> {
    pub(super) found: T,
    pub(super) is_empty: bool,
    /// Whether something due could not be given: try again at once.
    pub(super) more: bool,
    /// Time at which the next run becomes due for this worker.
    pub(super) next_due: Option<Time>,
}

/// All waiting claims.
#[derive(Default)]
pub(super) struct Waiting {
    tables: Mutex<ClaimTables>,
    /// Wakes the task: there is a reason to look now.
    look: Notify,
}

#[derive(Default)]
struct ClaimTables {
    /// Waiting claims by tenant and what they wait for, in order of arrival. By tenant, because each start of a tenant asks for its
    /// own: another's thousands must not be passed over each time.
    queues: BTreeMap<WorkspaceId, ClaimQueues>,
    claims: HashMap<u64, Arc<ClaimSignal>>,
    came: u64,
    /// Whether the shared task is running.
    looked_for: bool,
    /// Time of the task's next look; `None` while it looks.
    next_look: Option<Time>,
}

/// Waiting claims of one tenant by what they wait for.
type ClaimQueues = BTreeMap<Drives, BTreeSet<u64>>;

impl ClaimTables {
    /// Removes a claim from the queue of what it waited for.
    fn remove(&mut self, drives: &Drives, id: u64) {
        let Some(queues) = self.queues.get_mut(&drives.workspace) else { return };
        let Some(queue) = queues.get_mut(drives) else { return };
        queue.remove(&id);
        if queue.is_empty() {
            queues.remove(drives);
        }
        if queues.is_empty() {
            self.queues.remove(&drives.workspace);
        }
    }
}

/// Tells a waiting claim that something may be due for it.
#[derive(Default)]
struct ClaimSignal {
    notify: Notify,
}

/// Registration of a waiting claim; dropping it removes the claim.
struct WaitingClaim<'w> {
    waiting: &'w Waiting,
    id: u64,
    call: Arc<ClaimSignal>,
    workflows: &'w [Drives],
    /// Whether the worker has looked and claims now. The next one is called after that claim: a thousand idle workers do
    /// not all hear of one run.
    claims_next: bool,
}

impl Drop for WaitingClaim<'_> {
    fn drop(&mut self) {
        let mut tables = self.waiting.lock();
        tables.claims.remove(&self.id);
        for drives in self.workflows {
            tables.remove(drives, self.id);
        }
        drop(tables);
        // There may be more, or the claim was called and left without a try: the next one is called.
        if !self.claims_next {
            self.waiting.look.notify_one();
        }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, ClaimTables> {
        // Every change is a few map operations that do not panic half-way.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter<'w>(&'w self, workflows: &'w [Drives]) -> (WaitingClaim<'w>, bool) {
        let (mut tables, call) = (self.lock(), Arc::<ClaimSignal>::default());
        tables.came += 1;
        let id = tables.came;
        for drives in workflows {
            let queues = tables.queues.entry(drives.workspace).or_default();
            queues.entry(drives.clone()).or_default().insert(id);
        }
        tables.claims.insert(id, call.clone());
        let first = !std::mem::replace(&mut tables.looked_for, true);
        drop(tables);
        (WaitingClaim { waiting: self, id, call, workflows, claims_next: false }, first)
    }

    /// What the woken tenants wait for, tenants with the fewest claims first, so that none is delayed by another's
    /// many. `None`, which ends the task, if no claim waits.
    fn wanted(&self, by: &WokenWorkspaces) -> Option<Vec<Drives>> {
        let mut tables = self.lock();
        if tables.claims.is_empty() {
            tables.looked_for = false;
            return None;
        }
        let woken = tables.queues.iter().filter(|(workspace, _)| by.includes(**workspace));
        let mut tenants: Vec<&ClaimQueues> = woken.map(|(_, queues)| queues).collect();
        tenants.sort_by_key(|queues| queues.len());
        Some(tenants.into_iter().flat_map(BTreeMap::keys).cloned().collect())
    }

    /// Calls the claim that has waited longest for this.
    fn call(&self, drives: &Drives) {
        let tables = self.lock();
        let queue = tables.queues.get(&drives.workspace).and_then(|queues| queues.get(drives));
        let first = queue.and_then(BTreeSet::first);
        if let Some(call) = first.and_then(|id| tables.claims.get(id)) {
            call.notify.notify_one();
        }
    }

    /// Tells the task that a run rests until `due`, if that is before its next look. While the task looks, it may
    /// have passed that run already, so it looks once more.
    pub(super) fn rests_until(&self, due: Time) {
        if self.lock().next_look.is_none_or(|next| due < next) {
            self.look.notify_one();
        }
    }

    /// Claims at once, or waits until something is due. The result may be empty.
    pub(super) async fn claim<T: Default>(
        app: &Arc<App>,
        workers: &Arc<Workers>,
        ask: &ClaimRequest,
        take: impl Fn() -> BoxFuture<'static, Result<ClaimTried<T>>>,
    ) -> Result<T> {
        if ask.wait_ms == 0 {
            let tried = take().await?;
            // It may follow a look, and there may be more.
            if !tried.is_empty && !ask.looks {
                workers.waiting.look.notify_one();
            }
            return Ok(tried.found);
        }
        let end = app.clock.now().after(Duration::from_millis(ask.wait_ms));
        let waiting = &workers.waiting;
        // Before the first try, so that what becomes due after it is noticed.
        let (mut place, first) = waiting.enter(&ask.workflows);
        if first {
            tokio::spawn(look_for_all(app.clone(), workers.clone()));
        }
        let (mut last, mut lease) = (T::default(), workers.roster.lease_of(app, ask).await?);
        loop {
            if app.stop.is_ordered() {
                return Ok(last);
            }
            let tried = take().await?;
            let now = app.clock.now();
            if !tried.is_empty || now >= end {
                place.claims_next = ask.looks && !tried.is_empty;
                return Ok(tried.found);
            }
            last = tried.found;
            if tried.more {
                continue;
            }
            // The task may have looked last before this claim was registered.
            tried.next_due.into_iter().for_each(|due| waiting.rests_until(due));
            let clocks_differ = tried.next_due.is_some_and(|due| due <= now);
            loop {
                let clocks = clocks_differ.then(|| sleep(CLOCKS));
                let beat = lease.as_ref().map(|lease| app.clock.until(lease.next));
                tokio::select! {
                    () = place.call.notify.notified() => break,
                    () = some(clocks) => break,
                    () = app.stop.ordered() => return Ok(last),
                    // One more try: on a clock that was moved forward, something may be due since.
                    () = app.clock.until(end) => break,
                    () = some(beat) => lease = Some(workers.roster.renew(app, ask).await?),
                }
            }
        }
    }
}

/// Awaits the future; never ends if there is none.
async fn some(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// The tenants for which something was heard.
enum WokenWorkspaces {
    All,
    Of(HashSet<WorkspaceId>),
}

impl WokenWorkspaces {
    fn includes(&self, workspace: WorkspaceId) -> bool {
        match self {
            Self::All => true,
            Self::Of(some) => some.contains(&workspace),
        }
    }

    fn add(&mut self, workspace: Option<WorkspaceId>) {
        match (&mut *self, workspace) {
            (Self::Of(some), Some(workspace)) => drop(some.insert(workspace)),
            _ => *self = Self::All,
        }
    }
}

/// Looks for all waiting claims, as long as there is one.
async fn look_for_all(app: Arc<App>, workers: Arc<Workers>) {
    let waiting = &workers.waiting;
    let mut wakes = app.store.wakes();
    let mut heard = WokenWorkspaces::All;
    while let Some(wanted) = waiting.wanted(&heard) {
        let began = app.clock.now();
        let planned = waiting.lock().next_look.take();
        let mut next_due = look(&app, waiting, &wanted).await;
        // Bounded in frequency: a look for many workflows costs the store time.
        let took = app.clock.now().0.saturating_sub(began.0);
        sleep(Duration::from_millis(u64::try_from(took).unwrap_or(0))).await;
        let floor = app.clock.now().after(FLOOR);
        if let WokenWorkspaces::Of(_) = heard {
            // The due times of the other tenants are unchanged.
            next_due = next_due.into_iter().chain(planned).min();
        }
        let next = next_due.map_or(floor, |due| due.min(floor));
        waiting.lock().next_look = Some(next);
        heard = tokio::select! {
            heard = something_due(&mut wakes) => heard,
            () = waiting.look.notified() => WokenWorkspaces::All,
            () = app.clock.until(next) => WokenWorkspaces::All,
            // The waiting claims observe the stop signal themselves.
            () = app.stop.ordered() => {
                waiting.lock().looked_for = false;
                return;
            }
        };
    }
}

/// Calls the claims for which something is due; returns when the next run becomes due.
async fn look(app: &App, waiting: &Waiting, wanted: &[Drives]) -> Option<Time> {
    let mut next_due: Option<Time> = None;
    for some in wanted.chunks(AT_ONCE) {
        let dues = match app.store.dues(some.to_vec()).await {
            Ok(dues) => dues,
            Err(error) => {
                tracing::warn!(%error, "due runs for waiting workers cannot be looked up; trying again");
                return next_due;
            }
        };
        let now = app.clock.now();
        for (drives, due) in some.iter().zip(dues) {
            match due {
                Some(due) if due <= now => waiting.call(drives),
                Some(due) => next_due = Some(next_due.map_or(due, |next| next.min(due))),
                None => {}
            }
        }
    }
    next_due
}

/// Waits until something may be due; returns the tenants of all wake-ups received so far.
async fn something_due(wakes: &mut Receiver<Wake>) -> WokenWorkspaces {
    let mut heard = WokenWorkspaces::Of(HashSet::new());
    let mut next = wakes.recv().await;
    loop {
        match next {
            Ok(Wake::DueIn(workspace)) => heard.add(Some(workspace)),
            Ok(Wake::Due | Wake::Arrived(_) | Wake::Settled | Wake::All) | Err(RecvError::Lagged(_)) => {
                heard.add(None);
            }
            Ok(Wake::Taken(_) | Wake::Paused(_) | Wake::Ended(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
        next = match wakes.try_recv() {
            Ok(wake) => Ok(wake),
            Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            Err(TryRecvError::Closed) => Err(RecvError::Closed),
            Err(TryRecvError::Empty) => match &heard {
                WokenWorkspaces::Of(some) if some.is_empty() => wakes.recv().await,
                _ => return heard,
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use semel::rules::path::Name;

    use super::*;

    fn drives(workspace: u128, workflow: &str) -> Drives {
        let [workflow, workflow_version] = [workflow, "1"].map(|text| Name::new(text).unwrap());
        Drives { workspace: WorkspaceId(uuid::Uuid::from_u128(workspace)), workflow, workflow_version }
    }

    fn is_called(place: &WaitingClaim<'_>) -> bool {
        use futures_util::FutureExt as _;
        place.call.notify.notified().now_or_never().is_some()
    }

    #[test]
    fn the_claim_that_has_waited_the_longest_is_called() {
        let (waiting, [a, b]) = (Waiting::default(), [drives(1, "a"), drives(1, "b")]);
        let (both, mine) = ([a.clone(), b.clone()], [a.clone()]);
        let (first, began) = waiting.enter(&both);
        let (second, again) = waiting.enter(&mine);
        assert!(began && !again, "one task looks for all");
        waiting.call(&a);
        assert_eq!((is_called(&first), is_called(&second)), (true, false));
        drop(first);
        waiting.call(&a);
        waiting.call(&b);
        assert!(is_called(&second));
        assert_eq!(
            waiting.wanted(&WokenWorkspaces::All),
            Some(vec![a]),
            "each workflow once, and what is still waited for"
        );
        drop(second);
        assert_eq!(waiting.wanted(&WokenWorkspaces::All), None);
        assert!(waiting.enter(&mine).1, "the task has ended: the next claim begins another");
    }

    #[test]
    fn after_a_look_the_next_worker_is_called_when_the_first_has_claimed() {
        use futures_util::FutureExt as _;
        let (waiting, mine) = (Waiting::default(), [drives(1, "a")]);
        let (mut looked, _) = waiting.enter(&mine);
        looked.claims_next = true;
        drop(looked);
        assert!(waiting.look.notified().now_or_never().is_none());
        drop(waiting.enter(&mine));
        assert!(waiting.look.notified().now_or_never().is_some(), "it may have been called and gone away");
    }

    #[test]
    fn the_tenant_that_waits_for_the_least_is_looked_for_first() {
        let waiting = Waiting::default();
        let (many, few) = ([drives(1, "a"), drives(1, "b"), drives(1, "c")], [drives(2, "z")]);
        let _places = (waiting.enter(&many), waiting.enter(&few));
        assert_eq!(waiting.wanted(&WokenWorkspaces::All).unwrap()[0], few[0]);
        let mut heard = WokenWorkspaces::Of(HashSet::new());
        heard.add(Some(few[0].workspace));
        assert_eq!(
            waiting.wanted(&heard).unwrap(),
            few,
            "and those that nothing was heard of are not looked for"
        );
        heard.add(None);
        assert_eq!(waiting.wanted(&heard).unwrap().len(), 4);
    }
}
