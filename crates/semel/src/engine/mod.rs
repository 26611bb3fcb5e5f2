//! The engine: the only place where rules, store and clock meet.
//!
//! `schedule` takes due runs, `drive` polls the workflow of each and commits, `run` is what driver and workflow share
//! while a run is in memory, `residents` are the runs in memory. What users hold in their hands is [`Engine`], [`Begin`]
//! and [`RunHandle`].

mod alone;
mod builder;
mod caller;
mod client;
mod deliver;
mod drive;
mod gauges;
mod handle;
mod list;
mod presence;
mod programs;
pub mod queue;
mod registry;
pub mod replay;
mod residents;
pub(crate) mod run;
mod schedule;
mod settle;
mod start;
mod store_time;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use self::builder::{Builder, IntoStore, Limits, open_store};
pub use self::client::{Client, ClientBuilder};
pub use self::deliver::DeliverTo;
pub use self::handle::{Doubt, RunHandle};
pub use self::list::ListRuns;
pub use self::programs::{Code, Programs};
#[doc(hidden)]
pub use self::registry::Registry;
pub use self::registry::{ByName, Startable, WorkflowName, WorkflowRef};
pub use self::replay::{History, Replay, Replays};
pub use self::start::Begin;

use self::alone::Alone;
use self::caller::EngineOrClient;
use self::drive::Driver;
use self::programs::Hosted;
use self::residents::Residents;
use self::run::Cell;
use self::run::state::Over;
use self::settle::PAUSE;
use self::store_time::StoreTime;
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives, HeldRuns};
use crate::rules::control::{Control, ControlAction};
use crate::rules::json::Payload;
use crate::rules::ledger::Ledger;
use crate::rules::path::Name;
use crate::rules::run::{NewRun, Run};
use crate::rules::start::default_version;
use crate::sabotage::{self, Bug};
use crate::store::{Arrival, Claimed, Find, FindBy, Lease, LeaseAct, RunCounts, Store};

/// Runs workflows. Clones are the same engine; when the last one is dropped it stops at once, as if the process had been
/// killed. [`Engine::shutdown`] lets running steps end first.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<StopOnDrop>,
    /// The tenant for which this handle starts, finds and controls runs.
    workspace: WorkspaceId,
}

/// Stops the engine's tasks when the last handle is gone.
struct StopOnDrop {
    core: Arc<Core>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.core.kill();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({:?})", self.core().node())
    }
}

/// The engine itself, shared by its handles, its tasks and the runs in memory.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The tenant whose runs of registered functions this engine drives. Families are driven for all tenants.
    home: WorkspaceId,
    registry: Arc<Registry>,
    hosted: Hosted,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    limits: Limits,
    /// Name by which operators know this engine.
    name: String,
    /// Time at which it was opened.
    since: Time,
    node: Mutex<NodeId>,
    store_time: StoreTime,
    alone: Alone,
    /// When the numbers of the store were last shown.
    gauges: gauges::Gauges,
    pub(crate) residents: Arc<Residents>,
    /// Something may be due, or there is room again for what was.
    due: Notify,
    /// The lease is in question.
    renew: Notify,
    /// The engine goes on as another node.
    renamed: Notify,
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
    /// Starts the description of an engine: store, workflows, options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    fn caller(&self) -> EngineOrClient {
        EngineOrClient::Engine(self.clone())
    }

    /// The workflow versions that this engine drives in the workspace of its builder, as name and version. Families are not
    /// among them.
    pub fn versions(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.core().hosted.versions()
    }

    /// Whether this engine drives runs of a workflow version in this handle's workspace.
    pub fn drives(&self, workflow: &Name, version: &Name) -> bool {
        self.core().can_drive(self.workspace, workflow, version)
    }

    /// Version that a start of a workflow gets in this handle's workspace if it names none: the one that the engine's
    /// [programs](Programs) say is current, or `1`.
    pub async fn current_version(&self, workflow: &Name) -> Result<Name> {
        let current = self.core().hosted.current(self.workspace, workflow).await?;
        Ok(current.unwrap_or_else(default_version))
    }

    /// Starts a run, or finds the run that has its key already. Set options on the returned [`Begin`], then await it.
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
        Begin::new(self.caller(), named, Payload::of(&input))
    }

    /// A run by its id. Whether there is such a run is asked when something is done with it.
    pub fn run(&self, id: RunId) -> RunHandle<serde_json::Value> {
        RunHandle::of(self.caller(), id)
    }

    /// The run that holds a key in the whole workspace.
    pub async fn run_by_key(&self, key: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.caller().run_by_key(key).await
    }

    /// The run that owns a token now.
    pub async fn hook(&self, token: &str) -> Result<Option<RunHandle<serde_json::Value>>> {
        self.caller().hook(token).await
    }

    /// Lists runs, the newest first. Say which, then await it.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// # use semel::rules::status::Status;
    /// # async fn order(_: Ctx, cents: u64) -> Result<u64> { Ok(cents) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// for run in engine.list().workflow("order").status(Status::Paused).await? {
    ///     engine.run(run.id()).resume().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self) -> ListRuns {
        ListRuns::new(self.caller())
    }

    /// Counts the open runs of this handle's workspace, by workflow: of each status at most 10,000, so that the cost is
    /// bounded. [`RunCounts::capped`] says whether there may be more. [`Store::counts_in`] counts to another bound.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, rules::status::Status};
    /// # async fn order(ctx: Ctx, (): ()) -> Result<bool> { ctx.hook("order:7").recv().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// # run.reached(Status::Waiting).await?;
    /// let counts = engine.counts().await?;
    /// assert_eq!((counts.open(), counts.paused(), counts.in_doubt), (1, 0, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn counts(&self) -> Result<RunCounts> {
        self.caller().counts().await
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
        DeliverTo::new(self.caller(), token.into(), Payload::of(&payload))
    }

    /// The state of this type that was given to [`Builder::state`]. None if none was given.
    pub fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.core().state()
    }

    /// The store, for what the engine does not show: ledgers, receipts, counts over all workspaces.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.core().store
    }

    /// The tenant for which this handle starts, finds and controls runs.
    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// The same engine for another tenant: what is started, found and controlled through this handle belongs to that
    /// workspace. An engine drives runs of registered functions in the workspace of its builder, and runs of
    /// [families](Builder::family) in all workspaces.
    #[must_use]
    pub fn in_workspace(&self, workspace: WorkspaceId) -> Self {
        Self { shared: self.shared.clone(), workspace }
    }

    /// Lengthens the engine's lease by a time that its [clock](crate::clock::ForwardClock) is about to skip, so that the
    /// lease does not end by that. An engine whose lease has ended goes on as another node in any case.
    pub async fn prolong_lease(&self, by: Duration) -> Result<()> {
        let core = self.core();
        match core.lease(core.node(), LeaseAct::Renew(core.limits.lease.saturating_add(by))).await {
            Ok(_) | Err(Error::NodeLost(_)) => Ok(()),
            Err(error) => Err(error),
        }
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
        // A poll that is under way on another thread ends first: from here on nothing reaches the store.
        tasks.shutdown().await;
        self.core().kill();
    }
}

impl Core {
    /// The store's time, as far as it is known. Never ahead of it: what is due by it is due.
    pub(crate) fn now(&self) -> Time {
        self.store_time.earliest(self.clock.now())
    }

    /// The store's time when `time` has passed. Never too early: it is counted from the latest that it may be now.
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
        // What waits for the end of a run looks elsewhere: no driver will tell.
        for cell in self.residents.all() {
            cell.set_over(Over::Gone);
        }
        self.residents.clear();
    }

    /// Drives a run that was just claimed.
    fn take(self: &Arc<Self>, claimed: Claimed) {
        let (run, version) = (claimed.run.id(), claimed.run.state.version);
        let workspace = claimed.run.new.workspace;
        if claimed.run.state.stalls > 0 {
            tracing::warn!(
                %run, workflow = %claimed.run.new.workflow,
                "a run is taken over: the lease of the node that drove it has ended"
            );
        }
        match claimed.entries {
            None => {
                if let Err(claimed) = self.residents.wake(Box::new(claimed)) {
                    self.rebuild(*claimed);
                }
            }
            Some(entries) => match Ledger::read(claimed.run, entries) {
                Err(source) => self.put_aside(workspace, run, version, &Error::Refused { run, source }),
                Ok(ledger) => match self.code_at_hand(&ledger.run().new) {
                    Some(code) => self.drive(ledger, claimed.inbox, &code),
                    None => {
                        let core = self.clone();
                        self.spawn(async move { core.load_and_drive(ledger, claimed.inbox).await });
                    }
                },
            },
        }
    }

    fn drive(self: &Arc<Self>, ledger: Ledger, inbox: Vec<Arrival>, code: &Code) {
        let mut driver = self.enter(ledger, inbox, code);
        self.spawn(async move { driver.drive().await });
    }

    /// Drives a claimed run whose code has to be read first. The claim stays: a run that others take meanwhile refuses
    /// the first commit.
    async fn load_and_drive(self: Arc<Self>, ledger: Ledger, inbox: Vec<Arrival>) {
        let (new, version) = (ledger.run().new.clone(), ledger.run().state.version);
        loop {
            match self.code(new.workspace, &new.workflow, &new.workflow_version).await {
                Ok(code) => return self.drive(ledger, inbox, &code),
                Err(error @ (Error::Unavailable(_) | Error::Unknown(_))) if !self.is_stopping() => {
                    tracing::warn!(%error, run = %new.id, "the code of a run cannot be read; trying again");
                    self.clock.until(self.clock.now().after(PAUSE)).await;
                }
                Err(Error::Unavailable(_) | Error::Unknown(_)) => return self.free_slot(),
                Err(error) => return self.put_aside(new.workspace, new.id, version, &error),
            }
        }
    }

    /// Pauses a claimed run that cannot be driven.
    fn put_aside(self: &Arc<Self>, workspace: WorkspaceId, run: RunId, version: u64, error: &Error) {
        tracing::error!(%error, %run, "a claimed run cannot be driven; it is paused");
        self.free_slot();
        let (core, by) = (self.clone(), format!("engine: {error}"));
        self.spawn(async move { core.set_aside(workspace, run, version, by).await });
    }

    /// The code of a run, if it need not be read from elsewhere.
    fn code_at_hand(&self, new: &NewRun) -> Option<Code> {
        self.hosted.code(new.workspace, &new.workflow, &new.workflow_version)
    }

    /// Drives a claimed run that made room a moment ago: what it had in memory has to be read again.
    fn rebuild(self: &Arc<Self>, claimed: Claimed) {
        let core = self.clone();
        self.spawn(async move { core.read_and_drive(claimed.run, claimed.inbox).await });
    }

    async fn read_and_drive(self: Arc<Self>, run: Run, inbox: Vec<Arrival>) {
        let (id, version) = (run.id(), run.state.version);
        loop {
            match self.store.ledger(run.new.workspace, id, 1).await {
                Ok(numbered)
                    if numbered.len() as u64 == version || sabotage::commits(Bug::NewerLedgerIsDriven) =>
                {
                    let entries = numbered.into_iter().map(|numbered| numbered.entry).collect();
                    return self.take(Claimed { run, entries: Some(entries), inbox });
                }
                // Others have written since the claim, so the claim is over: the run was cancelled, paused or taken over. Or
                // it has ended and is forgotten.
                Ok(_) | Err(Error::RunNotFound(_)) => return self.free_slot(),
                Err(error @ (Error::Unavailable(_) | Error::Unknown(_))) => {
                    tracing::warn!(%error, run = %id, "a ledger cannot be read; trying again");
                    self.clock.until(self.clock.now().after(PAUSE)).await;
                }
                Err(error) => {
                    tracing::error!(%error, run = %id, "a ledger cannot be read; its run is paused");
                    self.free_slot();
                    return self.set_aside(run.new.workspace, id, version, format!("engine: {error}")).await;
                }
            }
        }
    }

    /// Pauses a run that this engine has claimed at a version and cannot drive, so that an operator looks at it. Once the
    /// claim is over there is nothing left to do.
    async fn set_aside(&self, workspace: WorkspaceId, run: RunId, version: u64, by: String) {
        let action = ControlAction::Pause;
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
    fn enter(self: &Arc<Self>, ledger: Ledger, inbox: Vec<Arrival>, code: &Code) -> Driver {
        let cell = Cell::new(self.clone(), ledger, inbox, false);
        self.residents.enter(&cell);
        self.driver(cell, code)
    }

    /// The driver of a run that has come into memory.
    fn driver(self: &Arc<Self>, cell: Arc<Cell>, code: &Code) -> Driver {
        let input = cell.ledger(|ledger| ledger.created().input.clone());
        if self.is_stopping() {
            // The order to stop went out before this one was here.
            cell.order(|orders| orders.stop = true);
        }
        let execution = code.begin(cell.clone(), input);
        Driver::new(self.clone(), cell, execution)
    }

    /// A run waits durably and stays in memory as long as there is room.
    fn rests(&self, cell: &Arc<Cell>, version: u64, weight: usize) {
        cell.rest();
        self.free_slot();
        self.residents.rest(cell, version, weight, self.limits.resting_bytes, self.limits.resting);
        // Perhaps sooner than all others.
        self.due.notify_one();
    }

    /// Frees the slot of a driven run. The engine looks for due runs only if some may have been left for lack of a slot.
    fn free_slot(&self) {
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
        self.free_slot();
        cell.set_over(over);
        self.left.notify_one();
    }

    /// Marks the claim as lost if the run is not driven under it any more.
    async fn check_taken(&self, cell: &Cell) -> Result<()> {
        let (claim, find) = (cell.claim(), Find { workspace: cell.workspace, by: FindBy::Id(cell.id) });
        match self.store.find(find).await? {
            Some((run, _)) if run.state.node == Some(self.node()) => {}
            // It is not driven anywhere, and nothing has happened to it.
            Some((run, _)) if cell.rests_at(run.state.version) => {}
            _ => cell.lose(claim),
        }
        Ok(())
    }

    /// A run was just started, and something else was heard of it before the answer came: it is driven only if it is still
    /// as it was started.
    async fn check_started(&self, cell: &Cell) {
        let find = Find { workspace: cell.workspace, by: FindBy::Id(cell.id) };
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

pub(crate) use self::schedule::join;

impl Core {
    /// The code of a workflow version, wherever it is kept.
    async fn code(&self, workspace: WorkspaceId, workflow: &Name, version: &Name) -> Result<Code> {
        let code = match self.hosted.code(workspace, workflow, version) {
            Some(code) => Some(code),
            None => self.hosted.load(workspace, workflow, version).await?,
        };
        code.ok_or_else(|| {
            Error::Validation(format!(
                "version {version} of the workflow {workflow} is not registered in this engine: add \
                 `.workflow_version(\"{workflow}\", \"{version}\", function)` to its builder"
            ))
        })
    }

    /// A claim of everything that this engine can drive.
    fn claim(&self, limit: usize) -> Claim {
        let drives = |(workflow, version): (&Name, &Name)| Drives {
            workspace: self.home,
            workflow: workflow.clone(),
            workflow_version: version.clone(),
        };
        let workflows = self.hosted.versions().map(drives).collect();
        let families = self.hosted.families().to_vec();
        let held = Some(self.residents.clone() as Arc<dyn HeldRuns>);
        Claim { families, held, ..Claim::new(self.node(), workflows, limit) }
    }

    /// Whether this engine claims runs of a workspace.
    fn claims_in(&self, workspace: WorkspaceId) -> bool {
        workspace == self.home || !self.hosted.families().is_empty()
    }

    /// Whether this engine can drive runs of a workflow version in a workspace.
    fn can_drive(&self, workspace: WorkspaceId, workflow: &Name, version: &Name) -> bool {
        let claims = workspace == self.home || self.hosted.has_family_of(version);
        claims && self.hosted.may_have(workspace, workflow, version)
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
