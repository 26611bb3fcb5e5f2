//! A store that fails on purpose: before a call takes place, or after, when only its answer is lost.
//!
//! Both look alike to a caller that times out. What a caller may do about either is to make the same call again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, broadcast};

use super::{
    Answer, Arrival, Claims, Find, Lease, Numbered, Page, Query, Started, Store, Sweep, Swept, Wake,
};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::Outcome;
use crate::rules::once::{Once, OnceAnswer};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not take place: [`Error::Unavailable`].
    Before,
    /// It takes place and its answer is lost: [`Error::Unknown`].
    After,
    /// The same, but a commit takes place only when the next one does that nothing happens to, and right before it.
    Late,
    /// It takes place, and its answer comes when [`Faulty::let_go`] is called.
    Held,
}

/// Decides about every call that changes something, by its method's name.
pub type Plan = Box<dyn FnMut(&'static str) -> Option<Fault> + Send>;

/// A store whose calls fail as planned. Calls that only read never do.
pub struct Faulty {
    store: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// Who says nothing to those who listen here, but for what [`tell`](Self::tell) is given.
    silence: Option<broadcast::Sender<Wake>>,
    pool: Option<Semaphore>,
    /// A claim finds so many runs at most.
    spared: usize,
    /// Commits that are still on their way.
    late: Mutex<Vec<Commit>>,
    /// Lets the answers go that are held.
    held: Semaphore,
}

impl Faulty {
    /// Calls of the store fail as the plan says.
    pub fn new(
        store: Arc<dyn Store>,
        plan: impl FnMut(&'static str) -> Option<Fault> + Send + 'static,
    ) -> Self {
        let (plan, late) = (Mutex::new(Box::new(plan) as Plan), Mutex::default());
        let held = Semaphore::new(0);
        Self { store, plan, silence: None, pool: None, spared: usize::MAX, late, held }
    }

    /// No wake-up comes through: whoever uses this store does not hear that a run was taken away.
    #[must_use]
    pub fn deaf(self) -> Self {
        Self { silence: Some(broadcast::Sender::new(1)), ..self }
    }

    /// Tells those who listen to a [deaf](Self::deaf) store.
    pub fn tell(&self, wake: Wake) {
        if let Some(listeners) = &self.silence {
            // Nobody may be listening.
            drop(listeners.send(wake));
        }
    }

    /// Lets the answer of one [held](Fault::Held) call go.
    pub fn let_go(&self) {
        self.held.add_permits(1);
    }

    /// Like a database with so many connections: a call takes one, needs some turns of the runtime, and gives it back when
    /// it is over.
    #[must_use]
    pub fn pooled(self, connections: usize) -> Self {
        Self { pool: Some(Semaphore::new(connections)), ..self }
    }

    /// Like a database whose due runs others are about to take: a claim finds so many at most, however many it asks for.
    #[must_use]
    pub fn spares(self, runs: usize) -> Self {
        Self { spared: runs, ..self }
    }

    /// How many connections of the pool nobody has.
    pub fn idle(&self) -> usize {
        self.pool.as_ref().map_or(0, Semaphore::available_permits)
    }

    /// A call by way of the pool, if there is one.
    fn by_pool<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        /// More than a task needs between two calls.
        const TURNS: usize = 50;
        let Some(pool) = &self.pool else { return call() };
        Box::pin(async move {
            let _connection = pool.acquire().await.expect("a pool is not closed");
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            call().await
        })
    }

    /// The next calls fail one by one as listed; those after them do not.
    pub fn listed(store: Arc<dyn Store>, faults: impl IntoIterator<Item = Option<Fault>>) -> Self {
        let mut faults: VecDeque<_> = faults.into_iter().collect();
        Self::new(store, move |_| faults.pop_front().flatten())
    }

    fn fault(&self, call: &'static str) -> Option<Fault> {
        // A plan that panicked in another test task has still decided nothing here.
        (self.plan.lock().unwrap_or_else(PoisonError::into_inner))(call)
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move { self.with(name, self.fault(name), call).await })
    }

    fn with<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        fault: Option<Fault>,
        call: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            if fault == Some(Fault::Before) {
                return Err(Error::Unavailable(format!("{name} was not begun, on purpose").into()));
            }
            let answer = self.by_pool(call).await;
            match fault {
                Some(Fault::Held) => {
                    self.held.acquire().await.expect("it is not closed").forget();
                    answer
                }
                Some(_) => Err(Error::Unknown(format!("the answer to {name} is lost, on purpose").into())),
                None => answer,
            }
        })
    }

    fn late(&self) -> MutexGuard<'_, Vec<Commit>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Faulty {
    fn start(&self, start: super::Start) -> Answer<'_, Started> {
        self.call("start", move || self.store.start(start))
    }

    fn dues(&self, workflows: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>> {
        self.call("dues", move || self.store.dues(workflows))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let claim = Claim { limit: claim.limit.min(self.spared), ..claim };
        self.call("claim", move || self.store.claim(claim))
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        Box::pin(async move {
            let fault = self.fault("commit");
            if fault == Some(Fault::Late) {
                self.late().push(commit);
                return Err(Error::Unknown("a commit is on its way, on purpose".into()));
            }
            let late = if fault.is_none() { std::mem::take(&mut *self.late()) } else { Vec::new() };
            for commit in late {
                // Whoever sent it does not wait for an answer any more.
                drop(self.store.commit(commit).await);
            }
            self.with("commit", fault, move || self.store.commit(commit)).await
        })
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        self.call("deliver", move || self.store.deliver(deliver))
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        self.call("control", move || self.store.control(control))
    }

    fn once(&self, once: Once) -> Answer<'_, OnceAnswer> {
        self.call("once", move || self.store.once(once))
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        self.call("lease", move || self.store.lease(lease))
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        self.call("keep", move || self.store.keep(keep))
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.call("sweep", move || self.store.sweep(sweep))
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        self.by_pool(move || self.store.find(find))
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        self.by_pool(move || self.store.list(query))
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        self.by_pool(move || self.store.ledger(workspace, run, from))
    }

    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        self.by_pool(move || self.store.inbox(workspace, run, from))
    }

    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        self.by_pool(move || self.store.receipts(workspace, run))
    }

    fn records(&self, look: Look) -> Answer<'_, Vec<Record>> {
        self.by_pool(move || self.store.records(look))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.silence.as_ref().map_or_else(|| self.store.wakes(), broadcast::Sender::subscribe)
    }

    fn close(&self) -> Answer<'_, ()> {
        self.store.close()
    }
}

/// Makes a call until it is answered, as a client does whose connection is cut.
pub async fn until_answered<'a, T>(mut call: impl FnMut() -> Answer<'a, T>) -> Result<T> {
    loop {
        match call().await {
            Err(Error::Unavailable(_) | Error::Unknown(_)) => {}
            answered => return answered,
        }
    }
}
