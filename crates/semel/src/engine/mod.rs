//! The engine: the only place where rules, store and clock meet.
//!
//! `schedule` takes due runs, `drive` polls the workflow of each and commits, `cell` is what driver and workflow share,
//! `state` what is under its lock, `residents` are the runs in memory. What users hold in their hands is [`Engine`],
//! [`Begin`] and [`RunHandle`].

mod alone;
mod builder;
pub(crate) mod cell;
mod deliver;
mod drive;
mod handle;
pub(crate) mod inbox;
pub mod queue;
pub mod replay;
pub(crate) mod residents;
mod schedule;
mod settle;
mod signal;
mod start;
pub(crate) mod state;
mod store_time;
mod waits;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::builder::{Builder, IntoStore, Limits, open_store};
pub use self::deliver::DeliverTo;
pub(crate) use self::drive::{Execution, panic_text};
pub use self::handle::{Doubt, RunHandle};
pub use self::replay::{History, Replay, Replays};
pub use self::start::Begin;

use self::alone::Alone;
use self::cell::Cell;
use self::drive::Driver;
use self::residents::Residents;
use self::settle::PAUSE;
use self::state::Over;
use self::store_time::StoreTime;
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::control::{Action, Control};
use crate::rules::json::Payload;
use crate::rules::key::Token;
use crate::rules::ledger::Ledger;
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::sabotage::{self, Bug};
use crate::sdk::ctx::Ctx;
use crate::sdk::workflow::{Registered, Registry, Startable};
use crate::store::{Arrival, Claimed, Find, FindBy, Lease, LeaseAct, Store};

/// Runs workflows. Clones are the same engine; when the last one is dropped it stops at once, as if the process had been
/// killed. [`Engine::shutdown`] lets what has begun come to an end first.
#[derive(Clone)]
pub struct Engine(Arc<Running>);

/// Stops the engine's tasks when the last handle is gone.
struct Running {
    core: Arc<Core>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.core.kill();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:?})", self.0.core.node())
    }
}

/// What all parts of an engine share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workspace: WorkspaceId,
    pub(crate) registry: Registry,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    limits: Limits,
    node: Mutex<NodeId>,
    store_time: StoreTime,
    alone: Alone,
    pub(crate) residents: Arc<Residents>,
    /// Something may be due, or there is room again for what was.
    due: Notify,
    /// The lease is in question.
    renew: Notify,
    /// A run has left memory.
    left: Notify,
    stopping: AtomicBool,
    /// Whether the store was opened by this engine, and is closed with it.
    owns_store: bool,
    tasks: Mutex<JoinSet<()>>,
    /// Who decides whether this engine dies at a step.
    #[cfg(feature = "testing")]
    pub(crate) probe: Option<Arc<crate::testing::crash::fate::Fate>>,
}

impl Engine {
    /// Describes an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.0.core
    }

    /// The workflows that are registered in this engine, each with its version.
    pub fn versions(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.core().registry.versions()
    }

    /// Starts a run, or finds the one that its key stands for. Say more about it, then await it.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// async fn greet(_: Ctx, name: String) -> Result<String> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("greet", greet).open().await?;
    /// let run = engine.start(greet, "Ada".to_owned()).key("greeting-1").await?;
    /// assert_eq!(run.result().await?, "Hello, Ada!");
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a workflow and its input are handed over")]
    pub fn start<W, In>(&self, workflow: W, input: In) -> Begin<W::Out>
    where
        W: Startable<In>,
        In: serde::Serialize,
    {
        let named = workflow.named(&self.core().registry);
        Begin::new(self.clone(), named, Payload::of(&input))
    }

    /// A run by its id. Whether there is such a run is asked when something is done with it.
    pub fn run(&self, id: RunId) -> RunHandle<serde_json::Value> {
        RunHandle::of(self.clone(), id)
    }

    /// The run that holds a key in the whole workspace.
    pub async fn run_by_key(&self, key: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        let scope = crate::rules::key::Scope::of(
            crate::rules::key::KeyScope::Workspace,
            &Name::new("any")?,
            &Name::new("any")?,
        );
        self.find(FindBy::Key(scope, crate::rules::key::Key::new(key)?)).await
    }

    /// The run that owns a token now.
    pub async fn hook(&self, token: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.find(FindBy::Token(Token::new(token)?)).await
    }

    async fn find(&self, by: FindBy) -> Result<Option<RunHandle<serde_json::Value>>> {
        let find = Find { workspace: self.core().workspace, by };
        Ok(self.core().store.find(find).await?.map(|(run, _)| self.run(run.id())))
    }

    /// Puts a payload into the inbox of the token's owner. Say more about it, then await it.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, rules::status::Status};
    /// # async fn order(ctx: Ctx, (): ()) -> Result<bool> { ctx.hook("order:7").recv().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// # run.reached(Status::Waiting).await?;
    /// let first = engine.deliver("order:7", true).id("click-1").await?;
    /// let again = engine.deliver("order:7", true).id("click-1").await?;
    /// assert!(!first.absorbed && again.absorbed);
    /// assert!(run.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn deliver<T: serde::Serialize>(&self, token: impl Into<String>, payload: T) -> DeliverTo {
        DeliverTo::new(self.clone(), token.into(), Payload::of(&payload))
    }

    /// What was given with [`Builder::state`].
    pub fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.core().state()
    }

    /// The store, for what the engine does not show: lists, ledgers, receipts.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core().store
    }

    /// The tenant whose runs these are.
    pub fn workspace(&self) -> WorkspaceId {
        self.core().workspace
    }

    /// Stops: nothing new begins, what has begun has this long to end, everything is given back, and the store is closed
    /// if this engine has opened it.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        self.core().shutdown(grace).await
    }

    /// Stops at once and gives nothing back, as a killed process does.
    #[cfg(feature = "testing")]
    pub async fn crash(&self) {
        let mut tasks =
            std::mem::take(&mut *self.core().tasks.lock().unwrap_or_else(PoisonError::into_inner));
        // What is being polled on another thread comes to the end of that poll: from here on nothing reaches the store.
        tasks.shutdown().await;
        self.core().kill();
    }
}

impl Core {
    /// The store's time, as far as it is known. Never ahead of it: what is due by it is due.
    pub(crate) fn now(&self) -> Time {
        self.store_time.earliest(self.clock.now())
    }

    /// The store's time after so long. Never too early: it is counted from the latest that it may be now.
    pub(crate) fn after(&self, time: Duration) -> Time {
        let now = match sabotage::commits(Bug::TimesCountFromTheEarliest) {
            true => self.now(),
            false => self.store_time.latest(self.clock.now()),
        };
        now.after(time)
    }

    /// When this machine's clock will show what the store calls `at`.
    fn local(&self, at: Time) -> Time {
        self.store_time.local(at)
    }

    pub(crate) fn node(&self) -> NodeId {
        *self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.states.get(&TypeId::of::<T>()).cloned()?.downcast().ok()
    }

    /// A random number below one.
    pub(crate) fn random(&self) -> f64 {
        chance(&*self.clock)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn kill(&self) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        // Whoever waits for the end of a run looks elsewhere: no driver will tell.
        for cell in self.residents.all() {
            cell.set_over(Over::Gone);
        }
        self.residents.clear();
    }

    /// Drives a run that was just claimed.
    fn take(self: &Arc<Self>, claimed: Claimed) {
        let (run, version) = (claimed.run.id(), claimed.run.state.version);
        match claimed.entries {
            None => {
                if let Err(claimed) = self.residents.wake(Box::new(claimed)) {
                    self.rebuild(*claimed);
                }
            }
            Some(entries) => match Ledger::read(claimed.run, entries) {
                Ok(ledger) => {
                    let mut driver = self.enter(ledger, claimed.inbox);
                    self.spawn(async move { driver.drive().await });
                }
                Err(refused) => {
                    tracing::error!(%refused, %run, "a ledger cannot be read; its run is paused");
                    self.free_place();
                    let (core, by) = (self.clone(), format!("engine: {refused}"));
                    self.spawn(async move { core.set_aside(run, version, by).await });
                }
            },
        }
    }

    /// Drives a claimed run that made room a moment ago: what it had in memory has to be read again.
    fn rebuild(self: &Arc<Self>, claimed: Claimed) {
        let core = self.clone();
        self.spawn(async move { core.read_and_drive(claimed.run, claimed.inbox).await });
    }

    async fn read_and_drive(self: Arc<Self>, run: Run, inbox: Vec<Arrival>) {
        let (id, version) = (run.id(), run.state.version);
        loop {
            match self.store.ledger(self.workspace, id, 1).await {
                Ok(numbered) if numbered.len() as u64 == version => {
                    let entries = numbered.into_iter().map(|numbered| numbered.entry).collect();
                    return self.take(Claimed { run, entries: Some(entries), inbox });
                }
                // Others have written since the claim, so the claim is over: the run was cancelled, paused or taken over. Or
                // it has ended and is forgotten.
                Ok(_) | Err(Error::RunNotFound(_)) => return self.free_place(),
                Err(error @ (Error::Unavailable(_) | Error::Unknown(_))) => {
                    tracing::warn!(%error, run = %id, "a ledger cannot be read; trying again");
                    self.clock.until(self.clock.now().after(PAUSE)).await;
                }
                Err(error) => {
                    tracing::error!(%error, run = %id, "a ledger cannot be read; its run is paused");
                    self.free_place();
                    return self.set_aside(id, version, format!("engine: {error}")).await;
                }
            }
        }
    }

    /// Pauses a run that this engine has claimed at a version and cannot drive, so that an operator looks at it. Once the
    /// claim is over there is nothing left to do.
    async fn set_aside(&self, run: RunId, version: u64, by: String) {
        let (workspace, action) = (self.workspace, Action::Pause);
        let pause = Control { workspace, run, action, by, id: None, expected: Some(version) };
        loop {
            match self.store.control(pause.clone()).await {
                Ok(_) => return,
                Err(error @ (Error::Unavailable(_) | Error::Unknown(_))) => {
                    tracing::warn!(%error, %run, "a run that cannot be driven cannot be paused yet; trying again");
                    self.clock.until(self.clock.now().after(Duration::from_secs(1))).await;
                }
                Err(error) => {
                    tracing::error!(%error, %run, "a run that cannot be driven is not this engine's any more");
                    return;
                }
            }
        }
    }

    /// Puts a claimed run into memory, to be driven.
    fn enter(self: &Arc<Self>, ledger: Ledger, inbox: Vec<Arrival>) -> Driver {
        let cell = Cell::new(self.clone(), ledger, inbox, false);
        self.residents.enter(&cell);
        self.driver(cell)
    }

    /// The driver of a run that has come into memory.
    fn driver(self: &Arc<Self>, cell: Arc<Cell>) -> Driver {
        let (workflow, input) = {
            let state = cell.lock();
            let created = state.ledger.created();
            (self.registry.find(&created.workflow, &created.workflow_version), created.input.clone())
        };
        let Some(workflow) = workflow else {
            // Claims and starts ask for registered versions of workflows only.
            unreachable!("only what is registered is claimed")
        };
        if self.is_stopping() {
            // The order to stop went out before this one was here.
            cell.order(|orders| orders.stop = true);
        }
        let execution = workflow.call(Ctx::new(cell.clone()), input);
        Driver::new(self.clone(), cell, execution)
    }

    /// A run waits durably and stays in memory as long as there is room.
    fn rests(&self, cell: &Arc<Cell>, version: u64, weight: usize) {
        cell.rest();
        self.free_place();
        self.residents.rest(cell, version, weight, self.limits.resting_bytes, self.limits.resting);
        // Perhaps sooner than all others.
        self.due.notify_one();
    }

    /// A place for a driven run is free. To look for another run is worth it only if one may have been left where it was.
    fn free_place(&self) {
        if self.residents.free() {
            self.due.notify_one();
        }
    }

    /// A resting run has left memory.
    fn forget(self: &Arc<Self>, cell: &Arc<Cell>, over: Over) {
        self.residents.leave(cell);
        // From here on it is handed no claim. One that came after it had decided to leave goes to another driver.
        let late = cell.lock().orders.claimed.take();
        cell.set_over(over);
        self.left.notify_one();
        if let Some(claimed) = late {
            self.rebuild(*claimed);
        }
    }

    /// A driven run has left memory.
    fn finished(&self, cell: &Arc<Cell>, over: Over) {
        self.residents.leave(cell);
        self.free_place();
        cell.set_over(over);
        self.left.notify_one();
    }

    /// The run is somebody else's by now, if it is not driven under this claim any more.
    async fn check_taken(&self, cell: &Cell) -> Result<()> {
        let (claim, find) = (cell.claim(), Find { workspace: self.workspace, by: FindBy::Id(cell.id) });
        match self.store.find(find).await? {
            Some((run, _)) if run.state.node == Some(self.node()) => {}
            // Nobody drives it, and nothing has happened to it.
            Some((run, _)) if cell.rests_at(run.state.version) => {}
            _ => cell.lose(claim),
        }
        Ok(())
    }

    /// A run was just started, and something else was heard of it before the answer came: it is driven only if it is still
    /// as it was started.
    async fn check_started(&self, cell: &Cell) {
        let find = Find { workspace: self.workspace, by: FindBy::Id(cell.id) };
        loop {
            match self.store.find(find.clone()).await {
                Ok(Some((run, _)))
                    if run.state.node == Some(self.node()) && run.state.version == cell.claim() =>
                {
                    return;
                }
                Ok(_) => return cell.lose(cell.claim()),
                Err(error) => {
                    tracing::warn!(%error, run = %cell.id, "it is unknown who drives a run; asking again");
                    self.clock.until(self.clock.now().after(PAUSE)).await;
                }
            }
        }
    }
}

/// A function that could not be started.
pub(crate) fn unregistered(function: &str) -> Error {
    Error::Validation(format!(
        "{function} is not registered in this engine: add `.workflow(name, function)` to its builder"
    ))
}

pub(crate) use self::schedule::join;

impl Core {
    /// The code that a run follows.
    fn code(&self, workflow: &Name, version: &Name) -> Result<Registered> {
        self.registry.find(workflow, version).ok_or_else(|| {
            Error::Validation(format!(
                "version {version} of the workflow {workflow} is not registered in this engine: add \
                 `.workflow_version(\"{workflow}\", \"{version}\", function)` to its builder"
            ))
        })
    }

    /// A claim of everything that this engine can drive.
    fn claim(&self, limit: usize) -> Claim {
        let drives = |(workflow, version): (&Name, &Name)| Drives {
            workspace: self.workspace,
            workflow: workflow.clone(),
            workflow_version: version.clone(),
        };
        let workflows = self.registry.versions().map(drives).collect();
        Claim { held: Some(self.residents.clone()), ..Claim::new(self.node(), workflows, limit) }
    }

    async fn lease(&self, node: NodeId, act: LeaseAct) -> Result<Time> {
        self.store.lease(Lease { node, act }).await
    }
}

/// A random number below one.
fn chance(clock: &dyn Clock) -> f64 {
    // The last 32 bits of an id are random.
    f64::from(clock.uuid().as_u128() as u32) / (f64::from(u32::MAX) + 1.0)
}
