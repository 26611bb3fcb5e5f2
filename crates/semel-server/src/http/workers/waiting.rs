//! Claims that wait for something to become due. They share one look: one task asks the store when the earliest run of each
//! workflow is due that some claim waits for, and calls the claim that has waited for it the longest. So a thousand idle
//! workers cost one question at a time, not a thousand.
//!
//! A claim that waits is a sign of life: the lease of its worker is renewed meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use semel::clock::Time;
use semel::error::Result;
use semel::id::{NodeId, WorkspaceId};
use semel::rules::claim::Drives;
use semel::store::Wake;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::sleep;

use super::Workers;
use crate::app::App;

/// How often is looked without a reason: a wake-up of another process may have been lost.
const FLOOR: Duration = Duration::from_secs(1);
/// So many workflows are asked about in one question to the store.
const AT_ONCE: usize = 1_000;
/// Between two tries of a claim whose run is due by this clock, but not yet by the store's.
const CLOCKS: Duration = Duration::from_millis(20);

/// What a worker waits for.
pub(super) struct Ask {
    pub(super) workspace: WorkspaceId,
    /// The node of the worker, as the store knows it.
    pub(super) node: NodeId,
    pub(super) workflows: Vec<Drives>,
    pub(super) wait_ms: u64,
}

/// What a try to claim has come to.
pub(super) struct Tried<T> {
    pub(super) found: T,
    pub(super) is_empty: bool,
    /// Whether there was something that could not be given: it is tried again at once.
    pub(super) more: bool,
    /// When the next run becomes due for this worker.
    pub(super) next_due: Option<Time>,
}

/// All claims that wait.
#[derive(Default)]
pub(super) struct Waiting {
    tables: Mutex<Tables>,
    /// There is a reason to look now.
    look: Notify,
}

#[derive(Default)]
struct Tables {
    /// By what they wait for, in the order in which they came.
    queues: BTreeMap<Drives, BTreeSet<u64>>,
    claims: HashMap<u64, Arc<Call>>,
    came: u64,
    /// Whether the task runs that looks for all of them.
    looked_for: bool,
    /// When that task looks next; none while it looks.
    next_look: Option<Time>,
}

/// How a waiting claim is told that something may be due for it.
#[derive(Default)]
struct Call {
    notify: Notify,
}

/// The place of a waiting claim; it ends with the value.
struct Place<'w> {
    waiting: &'w Waiting,
    id: u64,
    call: Arc<Call>,
    workflows: &'w [Drives],
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut tables = self.waiting.lock();
        tables.claims.remove(&self.id);
        for drives in self.workflows {
            if let Some(queue) = tables.queues.get_mut(drives) {
                queue.remove(&self.id);
                if queue.is_empty() {
                    tables.queues.remove(drives);
                }
            }
        }
        drop(tables);
        // There may be more, or it was called and has gone without a try: the next one is called.
        self.waiting.look.notify_one();
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        // Every change is a few map operations that do not panic half-way.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter<'w>(&'w self, workflows: &'w [Drives]) -> (Place<'w>, bool) {
        let (mut tables, call) = (self.lock(), Arc::<Call>::default());
        tables.came += 1;
        let id = tables.came;
        for drives in workflows {
            tables.queues.entry(drives.clone()).or_default().insert(id);
        }
        tables.claims.insert(id, call.clone());
        let first = !std::mem::replace(&mut tables.looked_for, true);
        drop(tables);
        (Place { waiting: self, id, call, workflows }, first)
    }

    /// What is waited for by the tenants that something was heard of; those first that wait for the least, so that none is
    /// held up by another's many. None, and the task ends, if no claim waits at all.
    fn wanted(&self, by: &Heard) -> Option<Vec<Drives>> {
        let mut tables = self.lock();
        if tables.claims.is_empty() {
            tables.looked_for = false;
            return None;
        }
        let mut many: HashMap<WorkspaceId, usize> = HashMap::new();
        for drives in tables.queues.keys() {
            *many.entry(drives.workspace).or_default() += 1;
        }
        let about = |drives: &&Drives| by.includes(drives.workspace);
        let mut wanted: Vec<Drives> = tables.queues.keys().filter(about).cloned().collect();
        wanted.sort_by_key(|drives| many[&drives.workspace]);
        Some(wanted)
    }

    /// Something of this is due: calls the claim that has waited for it the longest.
    fn call(&self, drives: &Drives) {
        let tables = self.lock();
        let first = tables.queues.get(drives).and_then(|queue| queue.first());
        if let Some(call) = first.and_then(|id| tables.claims.get(id)) {
            call.notify.notify_one();
        }
    }

    /// A run rests until this time: if that is sooner than the next look, the task has to know. While it looks, it may have
    /// passed by that run already, and looks once more.
    pub(super) fn rests_until(&self, due: Time) {
        if self.lock().next_look.is_none_or(|next| due < next) {
            self.look.notify_one();
        }
    }

    /// Claims at once, or waits until there is something. What is given in the end may be empty.
    pub(super) async fn claim<T: Default>(
        app: &Arc<App>,
        workers: &Arc<Workers>,
        ask: &Ask,
        take: impl Fn() -> BoxFuture<'static, Result<Tried<T>>>,
    ) -> Result<T> {
        if ask.wait_ms == 0 {
            return Ok(take().await?.found);
        }
        let end = app.clock.now().after(Duration::from_millis(ask.wait_ms));
        let waiting = &workers.waiting;
        // Before the first try: what becomes due after it is heard.
        let (place, first) = waiting.enter(&ask.workflows);
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
                return Ok(tried.found);
            }
            last = tried.found;
            if tried.more {
                continue;
            }
            // The task may have looked last before this claim came.
            tried.next_due.into_iter().for_each(|due| waiting.rests_until(due));
            let clocks_differ = tried.next_due.is_some_and(|due| due <= now);
            loop {
                let clocks = clocks_differ.then(|| sleep(CLOCKS));
                let beat = lease.as_ref().map(|lease| app.clock.until(lease.next));
                tokio::select! {
                    () = place.call.notify.notified() => break,
                    () = some(clocks) => break,
                    () = app.stop.ordered() => return Ok(last),
                    () = app.clock.until(end) => return Ok(last),
                    () = some(beat) => lease = Some(workers.roster.renew(app, ask).await?),
                }
            }
        }
    }
}

/// Is over with this; never if there is nothing.
async fn some(future: Option<impl Future<Output = ()>>) {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Of which tenants something was heard.
enum Heard {
    All,
    Of(HashSet<WorkspaceId>),
}

impl Heard {
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

/// Looks for all claims that wait, for as long as there is one.
async fn look_for_all(app: Arc<App>, workers: Arc<Workers>) {
    let waiting = &workers.waiting;
    let mut wakes = app.store.wakes();
    let mut heard = Heard::All;
    while let Some(wanted) = waiting.wanted(&heard) {
        let began = app.clock.now();
        let planned = waiting.lock().next_look.take();
        let mut next_due = look(&app, waiting, &wanted).await;
        // Not all the time, however much happens: a look of many workflows takes its time at the store.
        let took = app.clock.now().0.saturating_sub(began.0);
        sleep(Duration::from_millis(u64::try_from(took).unwrap_or(0))).await;
        let floor = app.clock.now().after(FLOOR);
        if let Heard::Of(_) = heard {
            // What the others wait for is as it was.
            next_due = next_due.into_iter().chain(planned).min();
        }
        let next = next_due.map_or(floor, |due| due.min(floor));
        waiting.lock().next_look = Some(next);
        heard = tokio::select! {
            heard = something_due(&mut wakes) => heard,
            () = waiting.look.notified() => Heard::All,
            () = app.clock.until(next) => Heard::All,
            // Those who wait hear of it themselves.
            () = app.stop.ordered() => {
                waiting.lock().looked_for = false;
                return;
            }
        };
    }
}

/// Calls the claims for which something is due; gives when the next run becomes due.
async fn look(app: &App, waiting: &Waiting, wanted: &[Drives]) -> Option<Time> {
    let mut next_due: Option<Time> = None;
    for some in wanted.chunks(AT_ONCE) {
        let dues = match app.store.dues(some.to_vec()).await {
            Ok(dues) => dues,
            Err(error) => {
                tracing::warn!(%error, "it cannot be looked what is due for waiting workers; trying again");
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

/// Waits until something may be due; gives of whom, with all that was told by now.
async fn something_due(wakes: &mut Receiver<Wake>) -> Heard {
    let mut heard = Heard::Of(HashSet::new());
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
                Heard::Of(some) if some.is_empty() => wakes.recv().await,
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

    fn is_called(place: &Place<'_>) -> bool {
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
            waiting.wanted(&Heard::All),
            Some(vec![a]),
            "each workflow once, and what is still waited for"
        );
        drop(second);
        assert_eq!(waiting.wanted(&Heard::All), None);
        assert!(waiting.enter(&mine).1, "the task has ended: the next claim begins another");
    }

    #[test]
    fn the_tenant_that_waits_for_the_least_is_looked_for_first() {
        let waiting = Waiting::default();
        let (many, few) = ([drives(1, "a"), drives(1, "b"), drives(1, "c")], [drives(2, "z")]);
        let _places = (waiting.enter(&many), waiting.enter(&few));
        assert_eq!(waiting.wanted(&Heard::All).unwrap()[0], few[0]);
        let mut heard = Heard::Of(HashSet::new());
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
