//! Starting a run: the request, and its result.

use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

use super::caller::EngineOrClient;
use super::drive::Driver;
use super::residents::Entered;
use super::run::Cell;
use super::settle::PAUSE;
use super::{Code, Core, RunHandle};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::id::RunId;
use crate::rules::entry::Message;
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::{CallId, InvalidKey, Key, KeyScope, Token};
use crate::rules::ledger::Ledger;
use crate::rules::path::Name;
use crate::rules::run::Retention;
use crate::rules::start::{Handover, Policy, Start};
use crate::sabotage::{self, Bug};
use crate::store::{Arrival, Started, Store};
use std::sync::Arc;

/// How often a start is repeated whose answer was lost.
const TRIES: usize = 50;

/// A start that has not taken place yet. It does when it is awaited.
#[must_use = "a start takes place when it is awaited"]
pub struct Begin<Out> {
    caller: EngineOrClient,
    start: Result<Box<Start>>,
    out: std::marker::PhantomData<fn() -> Out>,
}

impl<Out> std::fmt::Debug for Begin<Out> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Begin").field(&self.start).finish()
    }
}

impl<Out> Begin<Out> {
    pub(super) fn new(
        caller: EngineOrClient,
        named: Result<(Name, Name)>,
        input: Result<Payload, InvalidJson>,
    ) -> Self {
        let start = named.and_then(|(workflow, version)| {
            let run = RunId(caller.clock().uuid());
            let start = Start::new(caller.workspace(), run, workflow, input?, None);
            Ok(Box::new(Start { workflow_version: version, ..start }))
        });
        Self { caller, start, out: std::marker::PhantomData }
    }

    fn with(mut self, change: impl FnOnce(&mut Start) -> Result<()>) -> Self {
        self.start = self.start.and_then(|mut start| change(&mut start).map(|()| start));
        self
    }

    /// Sets the idempotency key of this request: a second start with the same key finds the run of the first.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// # async fn order(_: Ctx, cents: u64) -> Result<u64> { Ok(cents) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// let first = engine.start(order, 1999).key("order-7").await?;
    /// let again = engine.start(order, 1999).key("order-7").await?;
    /// assert!(first.created() && !again.created());
    /// assert_eq!(first.id(), again.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(self, key: impl Into<String>) -> Self {
        self.with(|start| {
            start.key = Key::new(key)?;
            Ok(())
        })
    }

    /// Where the key is unique: in the workspace, if nothing is said.
    pub fn scope(self, scope: KeyScope) -> Self {
        self.with(|start| {
            start.scope = scope;
            Ok(())
        })
    }

    /// Sets the policy for a key that is in use; the default is to attach to the existing run.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, OnConflict, Result};
    /// # use semel::rules::status::Status;
    /// # async fn order(ctx: Ctx, _cents: u64) -> Result<()> { ctx.hook("paid").recv().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// let old = engine.start(order, 1999).key("order-7").await?;
    /// // Another amount under the same key: the new request takes the place of the old one.
    /// let new = engine.start(order, 2999).key("order-7").on_conflict(OnConflict::SUPERSEDE).await?;
    /// assert!(new.created());
    /// assert_eq!(old.status().await?, Status::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_conflict(self, policy: Policy) -> Self {
        self.with(|start| {
            start.policy = policy;
            Ok(())
        })
    }

    /// How long history and key are remembered after the end.
    pub fn retention(self, retention: Retention) -> Self {
        self.with(|start| {
            start.retention = retention;
            Ok(())
        })
    }

    /// A JSON pointer into the input that does not count when two inputs are compared.
    pub fn ignoring(self, pointer: impl Into<String>) -> Self {
        self.with(|start| {
            start.excluded.push(pointer.into());
            Ok(())
        })
    }

    /// Not before this much time has passed.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|start| {
            start.delay = delay;
            Ok(())
        })
    }

    /// If the run has not ended after this long, it is ended: `TIMED_OUT`. A paused run is
    /// ended when it is resumed.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|start| {
            start.timeout = Some(timeout);
            Ok(())
        })
    }

    /// Hands a payload over with the start, in one transaction: to the owner of the token if there is one, which is then
    /// the result of the start; else to the run that is started, for when it opens a hook with this token. If the key finds a
    /// run that has ended, and no run owns the token, the payload goes nowhere: [`RunHandle::delivered`] says so.
    ///
    /// The same payload for the same token is absorbed when it comes again with the same workflow, key and scope, as long as
    /// the key belongs to the same run. To deliver an equal payload twice, give each its own
    /// [`delivery_id`](Self::delivery_id).
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// # async fn cart(ctx: Ctx, (): ()) -> Result<String> { ctx.hook("cart:7").recv().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("cart", cart).open().await?;
    /// // Whether the cart is there or not: it gets the pens, once.
    /// let put = || engine.start(cart, ()).key("cart-7").deliver("cart:7", "pens").delivery_id("click-1");
    /// let (first, again) = (put().await?, put().await?);
    /// assert_eq!((first.id(), first.result().await?), (again.id(), "pens".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn deliver<T: Serialize>(self, token: impl Into<String>, payload: T) -> Self {
        self.with(|start| {
            let (token, payload) = (Token::new(token)?, Payload::of(&payload)?);
            start.deliver = Some(Handover { token, payload, id: None });
            Ok(())
        })
    }

    /// The id under which the delivery of this start may be repeated.
    pub fn delivery_id(self, id: impl Into<String>) -> Self {
        self.with(|start| {
            let id: Result<CallId, InvalidKey> = CallId::new(id);
            match &mut start.deliver {
                Some(handover) => handover.id = Some(id?),
                None => return Err(Error::Validation("`delivery_id` comes after `deliver`".to_owned())),
            }
            Ok(())
        })
    }
}

impl<Out: Send + 'static> IntoFuture for Begin<Out> {
    type Output = Result<RunHandle<Out>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (caller, start) = (self.caller, self.start?);
            let (started, cell) = match caller.core() {
                Some(core) => begin(core, start).await?,
                None => {
                    let (started, _) = start_for_certain(&**caller.store(), &**caller.clock(), &start).await;
                    (Box::new(started?), None)
                }
            };
            Ok(RunHandle::started(caller, started, cell))
        })
    }
}

/// Starts a run in an engine. Gives the run in its memory, if it is driven there.
async fn begin(core: &Arc<Core>, start: Box<Start>) -> Result<(Box<Started>, Option<Arc<Cell>>)> {
    let (reply, answer) = oneshot::channel();
    let starting = core.clone();
    // Apart from the caller: if that goes away in the middle, the run that comes with its claim is driven all
    // the same, by this very task.
    core.spawn(async move {
        // Boxed: the task may rest for months, and needs no room for its start then.
        let (answer, driver) = match Box::pin(starting.start(start)).await {
            Ok((started, driver)) => (Ok((started, driver.as_ref().map(Driver::cell))), driver),
            Err(error) => (Err(error), None),
        };
        // A caller that has gone away needs no answer.
        drop(reply.send(answer));
        if let Some(mut driver) = driver {
            driver.drive().await;
        }
    });
    answer.await.map_err(|_| Error::Unavailable("the engine has stopped".into()))?
}

/// A start whose answer is lost is repeated until it is known: the run may be there, with the claim of an engine on it.
/// Gives whether it was repeated.
async fn start_for_certain(store: &dyn Store, clock: &dyn Clock, start: &Start) -> (Result<Started>, bool) {
    for tried in 0..TRIES {
        match store.start(start.clone()).await {
            Err(Error::Unknown(error)) => {
                tracing::warn!(%error, run = %start.run, "it is unknown whether a run was started; asking again");
                clock.until(clock.now().after(PAUSE)).await;
            }
            answer => return (answer, tried > 0),
        }
    }
    let unknown = Error::Unknown("the store has not told whether a run was started".into());
    (Err(unknown), true)
}

impl Core {
    /// Starts a run. If there is room here it comes with its claim and its driver, without another trip to the store.
    async fn start(self: &Arc<Self>, mut start: Box<Start>) -> Result<(Box<Started>, Option<Driver>)> {
        // Code that has to be read first is not worth a claim here: the start would wait for it.
        let code = self.code_of(&start);
        let here = code.is_some()
            && !self.is_stopping()
            && !self.drives_suspect()
            && start.delay.is_zero()
            && self.residents.reserve(1) == 1;
        let slot = here.then(|| (RunSlot(self), self.residents.starts(start.run)));
        start.claim = here.then(|| self.node());
        let claim = start.claim;
        let (started, asked_again) = start_for_certain(&*self.store, &*self.clock, &start).await;
        // As another node by now, this engine has given up what it had claimed.
        let same_node = claim == Some(self.node());
        let claimed = |started: &Started| started.created() && started.run.state.node == claim;
        let mine = same_node && started.as_ref().is_ok_and(claimed);
        if asked_again && same_node && !mine && !sabotage::commits(Bug::UnknownStartForgotten) {
            // The call that was not answered may still be on its way, and find the key free when it arrives: then it
            // starts a run with a claim of which this engine knows nothing. For another node that claim counts no more.
            let this = self.clone();
            self.spawn(async move { this.renounce().await });
        }
        let mut started = Box::new(started?);
        // A repeated request may find the run it made long ago: then its entries are not those of a fresh run.
        let fresh =
            started.entries.len() as u64 == started.run.state.version && started.run.state.version == 2;
        let Some(code) = code.filter(|_| mine && fresh && started.run.id() == start.run) else {
            return Ok((started, None));
        };
        let inbox = match (&started.delivered, start.deliver) {
            (Some(delivered), Some(Handover { token, payload, .. })) if delivered.run == started.run.id() => {
                let message = Message::Delivery { token, payload };
                vec![Arrival { number: delivered.arrival, at: started.run.new.created, message }]
            }
            _ => Vec::new(),
        };
        let read = Ledger::read(started.run.clone(), std::mem::take(&mut started.entries));
        let ledger = read.map_err(|source| Error::Refused { run: started.run.id(), source })?;
        let cell = Cell::new(self.clone(), ledger, inbox, false);
        let entered = self.residents.enter_started(&cell);
        if entered == Entered::IsHere {
            return Ok((started, None));
        }
        let driver = self.driver(cell, &code);
        // It is the driver's to give back now.
        if let Some((slot, _)) = slot {
            std::mem::forget(slot);
        }
        if entered == Entered::Touched {
            self.check_started(&driver.cell()).await;
        }
        Ok((started, Some(driver)))
    }
}

impl Core {
    /// The code of a start that this engine could drive at once.
    fn code_of(&self, start: &Start) -> Option<Code> {
        let claims = start.workspace == self.home || self.hosted.has_family_of(&start.workflow_version);
        claims.then(|| self.hosted.code(start.workspace, &start.workflow, &start.workflow_version)).flatten()
    }
}

/// A reserved slot for a driven run, freed unless a driver takes it over.
struct RunSlot<'a>(&'a Core);

impl Drop for RunSlot<'_> {
    fn drop(&mut self) {
        self.0.free_slot();
    }
}
