//! A handle on one run: its state, its result, and operator actions on it.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Core;
use super::caller::EngineOrClient;
use super::run::Cell;
use super::run::state::Over;
use crate::error::{Error, Result};
use crate::id::{RunId, WorkspaceId};
use crate::rules::control::{Control, ControlAction, Controlled, Fork};
use crate::rules::deliver::Delivered;
use crate::rules::entry::{Entry, Failure, FailureKind, Outcome, PauseReason, Resolution, RestartFrom};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::key::{CallId, Key};
use crate::rules::ledger::{Ledger, Lineage};
use crate::rules::path::Visit;
use crate::rules::run::Run;
use crate::rules::start::StartVerdict;
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::{Find, FindBy, Numbered, Started, Store, Wake};

/// Interval at which a wait for the end of a run asks the store, in case no wake-up arrives.
const LOOK: Duration = Duration::from_secs(1);

/// A step whose effect may or may not have taken place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Doubt {
    /// Path of the step in the run.
    pub step: String,
    /// Why it is not known whether the effect took place.
    pub reason: String,
}

/// A handle on one run. `Out` is the result type of its workflow.
pub struct RunHandle<Out> {
    caller: EngineOrClient,
    id: RunId,
    started: Option<Box<Started>>,
    /// The run in this engine's memory, if this handle has started it.
    cell: Option<Arc<Cell>>,
    by: Option<String>,
    call: Option<Result<CallId>>,
    out: PhantomData<fn() -> Out>,
}

impl<Out> fmt::Debug for RunHandle<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunHandle({})", self.id)
    }
}

impl<Out> RunHandle<Out> {
    pub(super) fn of(caller: EngineOrClient, id: RunId) -> Self {
        Self { caller, id, started: None, cell: None, by: None, call: None, out: PhantomData }
    }

    pub(super) fn started(caller: EngineOrClient, started: Box<Started>, cell: Option<Arc<Cell>>) -> Self {
        let handle = Self::of(caller, started.run.id());
        Self { started: Some(started), cell, ..handle }
    }

    /// Id of the run, unique in the store.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Whether the start that gave this handle made the run. False for one that was looked up.
    pub fn created(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.created())
    }

    /// Verdict of the start that gave this handle; none for a run that was looked up.
    pub fn verdict(&self) -> Option<StartVerdict> {
        self.started.as_ref().map(|started| started.verdict)
    }

    /// Where the payload of a start with [`deliver`](super::Begin::deliver) went. None if no run will consume it: the
    /// run under the key had ended, and no run owned the token.
    pub fn delivered(&self) -> Option<&Delivered> {
        self.started.as_ref().and_then(|started| started.delivered.as_ref())
    }

    /// The full answer to the start that gave this handle; none for a run that was looked up.
    pub fn answer(&self) -> Option<&Started> {
        self.started.as_deref()
    }

    /// The same run with another result type.
    pub fn typed<Other>(self) -> RunHandle<Other> {
        let Self { caller, id, started, cell, by, call, .. } = self;
        RunHandle { caller, id, started, cell, by, call, out: PhantomData }
    }

    /// Sets the name of the caller for the ledger; `engine` by default, or `client` for a [`Client`](super::Client).
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// Sets the id under which an action may be repeated without being done twice. It stays on the handle and belongs
    /// to one action: a different one under it is refused (`KEY_REUSED`), and needs another id, or a handle without
    /// one ([`Engine::run`](super::Engine::run)).
    #[must_use]
    pub fn call_id(mut self, id: impl Into<String>) -> Self {
        self.call = Some(CallId::new(id).map_err(Error::from));
        self
    }

    /// Present header of the run.
    pub async fn header(&self) -> Result<Run> {
        Ok(self.find().await?.0)
    }

    /// Present status of the run.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.find().await?.0.status())
    }

    /// Waits until it has a status, or has ended with another.
    pub async fn reached(&self, status: Status) -> Result<Status> {
        let (mut wakes, clock) = (self.caller.store().wakes(), self.caller.clock());
        let mut pause = Duration::from_millis(5);
        loop {
            let now = self.status().await?;
            if now == status || now.is_terminal() {
                return Ok(now);
            }
            // Not every change of status sends a wake-up, so the store is also polled, less and less often.
            let until = clock.until(clock.now().after(pause));
            tokio::select! {
                biased;
                // The timer first: other wake-ups must not hold it up.
                () = until => pause = (pause * 2).min(Duration::from_secs(1)),
                _ = wakes.recv() => {}
            }
        }
    }

    /// All entries of its ledger.
    pub async fn ledger(&self) -> Result<Vec<Numbered>> {
        self.caller.store().ledger(self.caller.workspace(), self.id, 1).await
    }

    /// Pauses the run: nothing new begins until it is resumed.
    pub async fn pause_reason(&self) -> Result<Option<PauseReason>> {
        let (status, ledger) = (self.status().await?, self.ledger().await?);
        let last = ledger.into_iter().rev().find_map(|numbered| match numbered.entry {
            Entry::Paused { reason } => Some(reason),
            _ => None,
        });
        Ok(last.filter(|_| status == Status::Paused))
    }

    /// Its steps in doubt, with the reason of each. Resolve them with [`happened`](Self::happened),
    /// [`did_not_happen`](Self::did_not_happen) or [`give_up`](Self::give_up).
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Fail, Result};
    /// # use semel::rules::status::Status;
    /// # async fn order(ctx: Ctx, (): ()) -> Result<u32> {
    /// #     ctx.step("letter").at_most_once().run(async |_| Err(Fail::uncertain("the line was cut"))).await
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> semel::Result<(), semel::Error> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// # run.reached(Status::Paused).await?;
    /// for doubt in run.doubts().await? {
    ///     println!("{}: {}", doubt.step, doubt.reason);
    ///     run.happened(&doubt.step, &17).await?;
    /// }
    /// assert_eq!(run.result().await?, 17);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn doubts(&self) -> Result<Vec<Doubt>> {
        let (run, ledger) = (self.header().await?, self.ledger().await?);
        let mut reasons = HashMap::new();
        let entries = ledger.into_iter().map(|numbered| numbered.entry).inspect(|entry| {
            if let Entry::StepInDoubt { step, reason } = entry {
                reasons.insert(step.clone(), reason.clone());
            }
        });
        let folded = Ledger::read(run, entries).map_err(|source| Error::Refused { run: self.id, source })?;
        let doubt =
            |step: Visit| Doubt { reason: reasons.remove(&step).unwrap_or_default(), step: step.to_string() };
        Ok(folded.doubts().into_iter().map(doubt).collect())
    }

    /// The run, if it is in this engine's memory. A run of another workspace is not found, as in the store.
    fn resident(&self, core: &Core) -> Option<Arc<Cell>> {
        core.residents.get(self.id).filter(|cell| cell.workspace == self.caller.workspace())
    }

    async fn find(&self) -> Result<(Run, Option<Outcome>)> {
        let find = Find { workspace: self.caller.workspace(), by: FindBy::Id(self.id) };
        self.caller.store().find(find).await?.ok_or(Error::RunNotFound(self.id))
    }

    /// Waits for its end and returns the outcome.
    pub async fn outcome(&self) -> Result<Outcome> {
        match self.caller.core() {
            Some(core) => self.ended_near(core).await,
            None => self.ended_in_store().await,
        }
    }

    /// Waits for its end in an engine, which may drive it.
    async fn ended_near(&self, core: &Core) -> Result<Outcome> {
        let mut here = self.cell.clone();
        loop {
            let driven = || self.resident(core).filter(|cell| !core.residents.rests(cell));
            if let Some(cell) = here.take().or_else(driven)
                && let Over::Ended(outcome) = cell.over().await
                && matches!(outcome, Outcome::Completed(_) | Outcome::Cancelled(_))
            {
                return Ok(outcome);
            }
            // Any other end may have been followed by a restart: the store knows.
            let before = self.resident(core).map(|cell| (cell.claim(), cell));
            if let Some(outcome) = core.ended_elsewhere(self.caller.workspace(), self.id).await? {
                if let Some((claim, cell)) = before {
                    // The run that rests here is no longer needed. Only this claim is lost: a newer one may belong to
                    // a restarted run.
                    cell.lose(claim);
                }
                return Ok(outcome);
            }
        }
    }

    /// Waits for its end as the store shows it.
    async fn ended_in_store(&self) -> Result<Outcome> {
        let (store, clock) = (self.caller.store(), self.caller.clock());
        // From here on no end is missed.
        let mut wakes = store.wakes();
        loop {
            if let Some(outcome) = outcome_of(&**store, self.caller.workspace(), self.id).await? {
                return Ok(outcome);
            }
            tokio::select! {
                biased;
                () = end_told(&mut wakes, self.id) => {}
                () = clock.until(clock.now().after(LOOK)) => {}
            }
        }
    }

    /// Ends it now. The first end wins: [`Controlled::changed`] says whether it was this call. After a won cancel
    /// nothing of the run is recorded any more, and no step begins in this engine; another engine that drives it
    /// begins none once it learns of the cancel, at its next write at the latest. No clean-up runs; see
    /// [`RunHandle::request_cancel`].
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// # async fn order(ctx: Ctx, (): ()) -> Result<()> { ctx.hook("paid").recv().await }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// assert!(run.cancel("out of stock").await?.changed);
    /// let late = run.cancel("too dear").await?;
    /// assert!(!late.changed && late.run.status().is_terminal());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel(&self, reason: impl Into<String>) -> Result<Controlled> {
        self.control(ControlAction::Cancel { reason: reason.into() }).await
    }

    /// Asks it to end: its waits and new steps fail with [`Fail::is_cancelled`](crate::Fail::is_cancelled), its
    /// clean-up steps run ([`Ctx::cleanup`](crate::Ctx::cleanup)), and then it is cancelled, unless it returns a
    /// result nevertheless.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// # use semel::rules::{entry::Outcome, status::Status};
    /// async fn trip(ctx: Ctx, (): ()) -> Result<()> {
    ///     let gone = ctx.hook("departure").recv().await;
    ///     if gone.is_err() {
    ///         ctx.cleanup().step("unbook").run(async |_| Ok(())).await?;
    ///     }
    ///     gone
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("trip", trip).open().await?;
    /// # let run = engine.start(trip, ()).await?;
    /// # run.reached(Status::Waiting).await?;
    /// run.request_cancel("ill").await?;
    /// assert_eq!(run.outcome().await?, Outcome::Cancelled("ill".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn request_cancel(&self, reason: impl Into<String>) -> Result<Controlled> {
        self.control(ControlAction::RequestCancel { reason: reason.into() }).await
    }

    /// Stops it until it is resumed.
    pub async fn pause(&self) -> Result<Controlled> {
        self.control(ControlAction::Pause).await
    }

    /// Lets a paused run go on.
    pub async fn resume(&self) -> Result<Controlled> {
        self.control(ControlAction::Resume).await
    }

    /// Lets a failed or timed-out run go on where it failed: what succeeded is kept.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, fatal};
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # static MENDED: AtomicBool = AtomicBool::new(false);
    /// # async fn order(ctx: Ctx, (): ()) -> Result<u32> {
    /// #     let pay = async |_| if MENDED.load(Ordering::SeqCst) { Ok(17) } else { Err(fatal("no such account")) };
    /// #     ctx.step("pay").run(pay).await
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// assert!(run.result().await.is_err());
    /// // What was wrong is mended.
    /// # MENDED.store(true, Ordering::SeqCst);
    /// run.retry().await?;
    /// assert_eq!(run.result().await?, 17);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry(&self) -> Result<Controlled> {
        self.control(ControlAction::Restart(RestartFrom::Failure)).await
    }

    /// Lets a failed or timed-out run begin again. Its effects have the same keys as before.
    pub async fn restart(&self) -> Result<Controlled> {
        self.control(ControlAction::Restart(RestartFrom::Beginning)).await
    }

    /// Frees its key for another run. A run that is being executed goes on; its driver records the release.
    pub async fn release_key(&self) -> Result<Controlled> {
        self.control(ControlAction::ReleaseKey).await
    }

    /// Starts a new run that takes over this run's ledger up to a version (all of it, if none is given). The new run
    /// has no parent and no time limit, even if this one had.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result, rules::ledger::Lineage};
    /// # async fn order(ctx: Ctx, (): ()) -> Result<String> {
    /// #     ctx.step("pay").run(async |attempt| Ok(attempt.key().to_owned())).await
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// # let run = engine.start(order, ()).await?;
    /// # let key = run.result().await?;
    /// // From the beginning: providers that are asked again get the same keys, or others.
    /// let (again, anew) = (run.fork(Some(1), Lineage::Inherited).await?, run.fork(Some(1), Lineage::Fresh).await?);
    /// assert_eq!(again.result().await?, key);
    /// assert_ne!(anew.result().await?, key);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fork(&self, at: Option<u64>, lineage: Lineage) -> Result<RunHandle<Out>> {
        self.fork_as(None, at, lineage).await
    }

    /// The same, under a key of its own.
    pub async fn fork_as(
        &self,
        key: Option<Key>,
        at: Option<u64>,
        lineage: Lineage,
    ) -> Result<RunHandle<Out>> {
        let run = RunId(self.caller.clock().uuid());
        let forked = self.control(ControlAction::Fork(Fork { run, key, at, lineage })).await?;
        Ok(RunHandle::of(self.caller.clone(), forked.run.id()))
    }

    /// A step in doubt took place, with this result.
    pub async fn happened<T: Serialize>(&self, step: &str, result: &T) -> Result<Controlled> {
        let payload = Payload::of(result)?;
        self.resolve(step, Resolution::Happened(payload)).await
    }

    /// A step in doubt did not take place: it is run again.
    pub async fn did_not_happen(&self, step: &str) -> Result<Controlled> {
        self.resolve(step, Resolution::DidNotHappen).await
    }

    /// Gives up on a step in doubt: it has failed. A retry of the run asks again before it tries again.
    pub async fn give_up(&self, step: &str, message: impl Into<String>) -> Result<Controlled> {
        let failure = Failure::new(FailureKind::Fatal, message);
        self.resolve(step, Resolution::GiveUp(failure)).await
    }

    /// Records whether the effect of a step in doubt took place.
    pub async fn resolve(&self, step: &str, resolution: Resolution) -> Result<Controlled> {
        let visit = Visit::parse(step);
        let step = visit.ok_or_else(|| Error::Validation(format!("{step:?} is no path of a step")))?;
        self.control(ControlAction::Resolve { step, resolution }).await
    }

    /// Takes an operator's action on the run, as the caller that the handle names.
    pub async fn control(&self, action: ControlAction) -> Result<Controlled> {
        let id = match &self.call {
            None => None,
            Some(Ok(id)) => Some(id.clone()),
            Some(Err(error)) => return Err(Error::Validation(error.to_string())),
        };
        let (workspace, run) = (self.caller.workspace(), self.id);
        let by = self.by.clone().unwrap_or_else(|| self.caller.title().to_owned());
        let control = Control { workspace, run, action, by, id, expected: None };
        match self.caller.core() {
            Some(core) => core.control(control).await,
            None => self.caller.store().control(control).await,
        }
    }
}

impl Core {
    /// Takes an operator's action on a run. If this engine has the run in memory and loses it by the action, nothing
    /// more of it begins here.
    async fn control(&self, control: Control) -> Result<Controlled> {
        let (run, asked) = (control.run, control.action.clone());
        let residents = &self.residents;
        let before = residents.get(run);
        let controlled = self.store.control(control).await?;
        // The engine that drives it has lost it as soon as the store says so, and begins nothing more.
        let takes = !matches!(asked, ControlAction::Fork(_)) && !asked.goes_to_inbox(controlled.run.status());
        let told = takes && controlled.changed && !sabotage::commits(Bug::CancelLeavesDriver);
        if !told {
            return Ok(controlled);
        }
        // It may be being started here: then it is not driven when the answer comes. Or that answer has come meanwhile.
        residents.touch(run);
        let since = residents.get(run);
        for cell in before.into_iter().chain(since) {
            if !cell.lose_before(controlled.run.state.version) {
                continue;
            }
            // Its execution is dropped before the answer is given, so that nothing of it begins afterwards; unless it
            // does not let go of its thread.
            let soon = self.clock.now().after(LOOK);
            tokio::select! {
                biased;
                _ = cell.over() => {}
                () = self.clock.until(soon) => {}
            }
        }
        Ok(controlled)
    }
}

impl<Out: DeserializeOwned> RunHandle<Out> {
    /// Waits for its end and gives its result; any other end is [`Error::Ended`]. A paused run has not ended: this waits until
    /// an operator lets it go on ([`pause_reason`](Self::pause_reason) says why it is).
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Error, Result, fatal};
    /// # async fn order(_: Ctx, (): ()) -> Result<u64> { Err(fatal("out of ink")) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("order", order).open().await?;
    /// match engine.start(order, ()).await?.result().await {
    ///     Ok(cents) => println!("{cents} cents"),
    ///     Err(Error::Ended { outcome, .. }) => println!("no result, but {outcome:?}"),
    ///     Err(other) => return Err(other.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn result(&self) -> Result<Out> {
        let value = match self.outcome().await? {
            Outcome::Completed(value) => value,
            outcome => return Err(Error::Ended { run: self.id, outcome: outcome.into() }),
        };
        value.read().map_err(|error| {
            let json =
                InvalidJson::Refused(format!("the result of {} is not of this type: {error}", self.id));
            Error::Json(json)
        })
    }
}

/// How a run has ended; none if it has not.
async fn outcome_of(store: &dyn Store, workspace: WorkspaceId, id: RunId) -> Result<Option<Outcome>> {
    let find = Find { workspace, by: FindBy::Id(id) };
    match store.find(find).await? {
        None => Err(Error::RunNotFound(id)),
        Some((run, None)) if run.status().is_terminal() => Ok(crate::rules::finish::purged(&run)),
        Some((_, outcome)) => Ok(outcome),
    }
}

/// Completes when the end of a run is told, or when it may have been missed.
async fn end_told(wakes: &mut Receiver<Wake>, run: RunId) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Ended(ended)) if ended == run => return,
            Ok(Wake::All) | Err(RecvError::Lagged(_)) => return,
            // The store tells nothing any more: its answers say so.
            Err(RecvError::Closed) => std::future::pending().await,
            Ok(_) => {}
        }
    }
}

impl Core {
    /// Waits for the end of a run that is not in this engine's memory. Gives nothing if it may have come into it.
    async fn ended_elsewhere(&self, workspace: WorkspaceId, id: RunId) -> Result<Option<Outcome>> {
        let end = self.residents.end_of(id);
        let told = end.notified();
        tokio::pin!(told);
        // From here on no end is missed.
        told.as_mut().enable();
        if let Some(outcome) = outcome_of(&*self.store, workspace, id).await? {
            return Ok(Some(outcome));
        }
        let here = self.residents.get(id).filter(|cell| !self.residents.rests(cell));
        if here.is_some() {
            // The run enters or leaves memory right now. Its driver needs a turn for that, and may be on this thread.
            tokio::task::yield_now().await;
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = told => {}
            // It may have come into this engine's memory, or the word of its end may be lost.
            () = self.clock.until(self.clock.now().after(LOOK)) => {}
        }
        Ok(None)
    }
}
