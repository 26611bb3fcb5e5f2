//! A store that fails on purpose: before a call takes place, or after, when only its answer is lost.
//!
//! Both look alike to a caller that times out. What a caller may do about either is to make the same call again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, broadcast};

use super::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use super::{Answer, Claims, Store, Wake};
use crate::error::{Error, Result};
use crate::rules::claim::Claim;
use crate::rules::commit::{Commit, Saved};

/// A fault that is injected into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not take place: [`Error::Unavailable`].
    Before,
    /// It takes place and its answer is lost: [`Error::Unknown`].
    After,
    /// The same, but a commit takes place only when the next one does that nothing happens to, and right before it.
    Late,
    /// It takes place, and its answer comes when [`Faults::let_go`] is called.
    Held,
}

/// Decides about every call that changes something, by its method's name.
pub type Plan = Box<dyn FnMut(&'static str) -> Option<Fault> + Send>;

/// A store whose calls fail as planned. Calls that only read never do.
pub type Faulty = Layered<Faults>;

/// The faults of a [`Faulty`] store.
pub struct Faults {
    store: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// If there is one, listeners hear nothing but what [`tell`](Self::tell) is given.
    silence: Option<broadcast::Sender<Wake>>,
    pool: Option<Semaphore>,
    /// Maximum number of runs that a claim finds.
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
        Self(Faults { store, plan, silence: None, pool: None, spared: usize::MAX, late, held })
    }

    /// The next calls fail one by one as listed; those after them do not.
    pub fn listed(store: Arc<dyn Store>, faults: impl IntoIterator<Item = Option<Fault>>) -> Self {
        let mut faults: VecDeque<_> = faults.into_iter().collect();
        Self::new(store, move |_| faults.pop_front().flatten())
    }

    /// No wake-up comes through: an engine on this store does not hear that a run was taken away.
    #[must_use]
    pub fn deaf(self) -> Self {
        Self(Faults { silence: Some(broadcast::Sender::new(1)), ..self.0 })
    }

    /// Like a database with a bounded number of connections: a call takes one, needs some turns of the runtime, and gives it back when
    /// it is over.
    #[must_use]
    pub fn pooled(self, connections: usize) -> Self {
        Self(Faults { pool: Some(Semaphore::new(connections)), ..self.0 })
    }

    /// Like a database whose due runs others are about to take: a claim finds at most this number, however many it asks for.
    #[must_use]
    pub fn spares(self, runs: usize) -> Self {
        Self(Faults { spared: runs, ..self.0 })
    }
}

impl Faults {
    /// Sends a wake-up to the listeners of a [deaf](Faulty::deaf) store.
    pub fn tell(&self, wake: Wake) {
        if let Some(listeners) = &self.silence {
            // There may be no listener.
            drop(listeners.send(wake));
        }
    }

    /// Lets the answer of one [held](Fault::Held) call go.
    pub fn let_go(&self) {
        self.held.add_permits(1);
    }

    /// How many connections of the pool are not in use.
    pub fn idle(&self) -> usize {
        self.pool.as_ref().map_or(0, Semaphore::available_permits)
    }

    /// A call by way of the pool, if there is one.
    async fn by_pool<T: Send + 'static>(&self, work: StoreWork<T>) -> Result<T> {
        /// More than a task needs between two calls.
        const TURNS: usize = 50;
        let Some(pool) = &self.pool else { return work(self.store.clone()).await };
        let _connection = pool.acquire().await.expect("a pool is not closed");
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        work(self.store.clone()).await
    }

    fn fault(&self, call: &'static str) -> Option<Fault> {
        // A plan that panicked in another test task has still decided nothing here.
        (self.plan.lock().unwrap_or_else(PoisonError::into_inner))(call)
    }

    async fn with<T: Send + 'static>(
        &self,
        name: &'static str,
        fault: Option<Fault>,
        work: StoreWork<T>,
    ) -> Result<T> {
        if fault == Some(Fault::Before) {
            return Err(Error::Unavailable(format!("{name} was not begun, on purpose").into()));
        }
        let answer = self.by_pool(work).await;
        match fault {
            Some(Fault::Held) => {
                self.held.acquire().await.expect("it is not closed").forget();
                answer
            }
            Some(_) => Err(Error::Unknown(format!("the answer to {name} is lost, on purpose").into())),
            None => answer,
        }
    }

    fn late(&self) -> MutexGuard<'_, Vec<Commit>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreLayer for Faults {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, call: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        Box::pin(async move {
            // A look for due runs is the first half of a claim.
            match call.writes || call.name == "dues" {
                true => self.with(call.name, self.fault(call.name), work).await,
                false => self.by_pool(work).await,
            }
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        let claim = Claim { limit: claim.limit.min(self.spared), ..claim };
        let call = StoreCall { name: "claim", writes: true };
        self.around(call, Box::new(move |store| Box::pin(async move { store.claim(claim).await })))
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
                // Its sender does not wait for an answer any more.
                drop(self.store.commit(commit).await);
            }
            let work = move |store: Arc<dyn Store>| -> Answer<'static, Saved> {
                Box::pin(async move { store.commit(commit).await })
            };
            self.with("commit", fault, Box::new(work)).await
        })
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.silence.as_ref().map_or_else(|| self.store.wakes(), broadcast::Sender::subscribe)
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
