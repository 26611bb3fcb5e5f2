//! Once: one result per label, in the run or beyond it.

use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::task::Poll;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::contain::contained;
use super::ctx::{Boxed, Ctx, path_key, read};
use super::fail::{Fail, Result, fatal};
use crate::engine::inbox::On;
use crate::engine::replay::watch::Asked;
use crate::engine::residents::Kin;
use crate::engine::state::Orders;
use crate::error::Error;
use crate::rules::entry::{Class, Entry};
use crate::rules::json::Payload;
use crate::rules::key::Label;
use crate::rules::ledger::Record;
use crate::rules::once::{Ask, Once as Call, OnceAnswer, OnceScope};
use crate::rules::path::{Path, Visit};
use crate::sabotage::{self, Bug};

/// Between two attempts to reach a store that cannot answer.
const PAUSE: Duration = Duration::from_millis(100);

/// Among whom a label has one result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Once {
    /// In this run.
    #[default]
    Run,
    /// Among all runs that ever had this run's key.
    Key,
    /// In the whole workspace.
    Workspace,
}

type Body<'a, T> = Box<dyn FnMut() -> Boxed<'a, T> + Send + 'a>;

/// Something to be done once. It is when it is awaited.
#[must_use = "nothing happens before it is awaited"]
pub struct RunOnce<'a, T> {
    ctx: &'a Ctx,
    label: String,
    scope: Once,
    ttl: Option<Duration>,
    timeout: Option<Duration>,
    body: Body<'a, T>,
}

impl<T> fmt::Debug for RunOnce<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunOnce({})", self.label)
    }
}

impl<'a, T> RunOnce<'a, T> {
    pub(super) fn new<B, Fut>(ctx: &'a Ctx, label: String, mut body: B) -> Self
    where
        B: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        let body = Box::new(move || Box::pin(body()) as Boxed<'a, T>);
        Self { ctx, label, scope: Once::Run, ttl: None, timeout: None, body }
    }

    /// Among whom it is done once: in this run, if nothing is said.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Once, Result};
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use std::time::Duration;
    /// static ASKED: AtomicU32 = AtomicU32::new(0);
    ///
    /// async fn quote(ctx: Ctx, (): ()) -> Result<u32> {
    ///     let ask = async || Ok(ASKED.fetch_add(1, Ordering::SeqCst) + 1);
    ///     ctx.run_once("rate", ask).scope(Once::Workspace).ttl(Duration::from_hours(1)).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("quote", quote).open().await?;
    /// // Two runs, within the hour: the second is given what the first was told.
    /// let (one, two) = (engine.start(quote, ()).await?, engine.start(quote, ()).await?);
    /// assert_eq!((one.result().await?, two.result().await?), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scope(mut self, scope: Once) -> Self {
        self.scope = scope;
        self
    }

    /// How long the result is remembered beyond this run; for ever, if nothing is said.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long the body may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

impl<'a, T> IntoFuture for RunOnce<'a, T>
where
    T: Serialize + DeserializeOwned + Send + 'a,
{
    type Output = Result<T>;
    type IntoFuture = Boxed<'a, T>;

    fn into_future(self) -> Boxed<'a, T> {
        Box::pin(run(self))
    }
}

/// A label has one outcome in a run, as a step has: a failure is recorded too, as that of a step at a place which all calls
/// share, so that whoever asks in a replay is told the same. A retry of the run forgets it. Inside of a step nothing of that
/// is recorded: a replay is given what became of the step, and its next try may ask again.
async fn run<T: Serialize + DeserializeOwned + Send>(mut once: RunOnce<'_, T>) -> Result<T> {
    let label = Label::new(once.label.clone()).map_err(fatal)?;
    let scope = once.store_scope();
    let place = (scope.as_ref().map(OnceScope::text).unwrap_or_default(), label.clone());
    let (ctx, inside, asks) = (once.ctx, once.ctx.cell.is_inside(), once.visit(&label)?);
    let cell = &ctx.cell;
    cell.asks_once(&place);
    loop {
        if let Some(value) = cell.lock().ledger.once(&place.0, &place.1) {
            return read(&label, value);
        }
        if let Some(fail) = failure_at(ctx, &asks, &label) {
            return Err(fail);
        }
        let Some(_turn) = Turn::take(ctx, &place).await else { continue };
        let active = cell.begin(&asks, ctx.shielded, None).await?;
        let made = match &scope {
            None => make(&mut once).await.map(OnceAnswer::Settled),
            Some(scope) => claim_or_make(&mut once, scope, &label).await,
        };
        match made {
            Ok(OnceAnswer::Settled(value)) => {
                let (scope, label) = place.clone();
                cell.lock().record_end(Entry::Once { label, scope, value, inside });
            }
            Ok(OnceAnswer::InFlight(_)) => {
                drop(active);
                wait(ctx, &asks, &place).await?;
            }
            Ok(other) => return Err(fatal(format_args!("a once was answered with {other:?}"))),
            Err(fail) if inside => return Err(fail),
            Err(fail) => record_failure(ctx, &asks, &fail),
        }
    }
}

/// Calls the body.
async fn make<T: Serialize>(once: &mut RunOnce<'_, T>) -> Result<Payload> {
    let RunOnce { ctx, timeout, body, .. } = once;
    contained(ctx, *timeout, async { body().await })
        .await
        .and_then(|value| Payload::of(&value).map_err(fatal))
}

fn record_failure(ctx: &Ctx, asks: &Visit, fail: &Fail) {
    let (step, error) = (asks.clone(), fail.failure());
    // Together: nobody, and no commit, comes by in between.
    let mut state = ctx.cell.lock();
    state.record(Entry::StepStarted { step: step.clone(), attempt: 1, class: Class::Keyed });
    state.record(Entry::StepFailed { step, attempt: 1, error, retry_at: None });
}

/// The recorded failure of a label.
fn failure_at(ctx: &Ctx, asks: &Visit, label: &Label) -> Option<Fail> {
    let mut state = ctx.cell.lock();
    let failure = match state.ledger.record_at(asks)? {
        Record::Step(step) => step.failure().cloned(),
        _ => None,
    };
    state.come_by(asks);
    if failure.is_none() {
        state.diverge(format!("`{asks}` is a once in the code, but not in the ledger"));
    }
    let fail = failure.map(|failure| Fail::recorded(label, &failure).at(&mut state, asks));
    drop(state);
    ctx.cell.asks(asks, || Asked::Once);
    fail
}

impl<T> RunOnce<'_, T> {
    /// Where a failure is recorded. Not in the scope of the [`Ctx`]: labels are the run's.
    fn visit(&self, label: &Label) -> Result<Visit> {
        let name = match self.scope {
            Once::Run => "@once",
            Once::Key => "@once-key",
            Once::Workspace => "@once-workspace",
        };
        Path::build(None, name, Some(&path_key(label.as_str()))).map(Visit::first).map_err(fatal)
    }

    /// Where the store keeps it; nowhere if it is this run's own.
    fn store_scope(&self) -> Option<OnceScope> {
        match self.scope {
            Once::Run => None,
            Once::Workspace => Some(OnceScope::Workspace),
            Once::Key => {
                let state = self.ctx.cell.lock();
                let created = state.ledger.created();
                Some(OnceScope::Key(created.scope.clone(), created.key.clone()))
            }
        }
    }
}

/// The result, made here if the store says so; or that another run is at it.
async fn claim_or_make<T: Serialize>(
    once: &mut RunOnce<'_, T>,
    scope: &OnceScope,
    label: &Label,
) -> Result<OnceAnswer> {
    let fence = match claim(once.ctx, scope, label).await? {
        OnceAnswer::Mine(fence) => fence,
        answer => return Ok(answer),
    };
    let (ctx, ttl) = (once.ctx, once.ttl);
    match make(once).await {
        Ok(value) => {
            let settle = move |fence| Ask::Settle { fence, value: value.clone(), ttl };
            tell(ctx, scope, label, fence, settle).await
        }
        Err(fail) => {
            // Somebody else may try.
            tell(ctx, scope, label, fence, |fence| Ask::Release { fence }).await?;
            Err(fail)
        }
    }
}

async fn claim(ctx: &Ctx, scope: &OnceScope, label: &Label) -> Result<OnceAnswer> {
    match ask(ctx, scope, label, Ask::Claim).await? {
        Some(answer) => Ok(answer),
        None => Err(fatal("a claim of a once was answered as if there had been another")),
    }
}

/// Tells the store what came of a grant. A claim of this run that was long on its way may have made a later grant meanwhile,
/// of which nobody knows: whoever still drives the run takes it, and says the same under it.
async fn tell(
    ctx: &Ctx,
    scope: &OnceScope,
    label: &Label,
    mut fence: u64,
    what: impl Fn(u64) -> Ask + Send,
) -> Result<OnceAnswer> {
    loop {
        if let Some(answer) = ask(ctx, scope, label, what(fence)).await? {
            return Ok(answer);
        }
        if sabotage::commits(Bug::OnceLostForEver) || !is_ours(ctx).await {
            // Another life of this run has taken it over: this one has nothing more to say.
            return std::future::pending().await;
        }
        fence = match claim(ctx, scope, label).await? {
            OnceAnswer::Mine(fence) => fence,
            answer => return Ok(answer),
        };
    }
}

/// Whether the run has not been claimed again since this life of it has it.
async fn is_ours(ctx: &Ctx) -> bool {
    let core = &ctx.cell.core;
    let fence = ctx.cell.lock().ledger.fence();
    loop {
        match core.store.ledger(core.workspace, ctx.cell.id, fence + 1).await {
            Ok(since) => {
                return !since.iter().any(|numbered| matches!(numbered.entry, Entry::Claimed { .. }));
            }
            Err(error) => {
                tracing::warn!(%error, run = %ctx.cell.id, "it is unknown who drives a run");
                core.clock.until(core.clock.now().after(PAUSE)).await;
            }
        }
    }
}

/// Asks the store; gives nothing if it knows a later grant.
async fn ask(ctx: &Ctx, scope: &OnceScope, label: &Label, ask: Ask) -> Result<Option<OnceAnswer>> {
    let core = &ctx.cell.core;
    let (workspace, run) = (core.workspace, ctx.cell.id);
    loop {
        let call = Call { workspace, scope: scope.clone(), label: label.clone(), run, ask: ask.clone() };
        match core.store.once(call).await {
            Ok(answer) => return Ok(Some(answer)),
            // All three may be repeated: a second claim by the same run is granted again, a second result absorbed.
            Err(error @ (Error::Unavailable(_) | Error::Unknown(_))) => {
                tracing::warn!(%error, %label, "a once has to wait for the store");
                core.clock.until(core.clock.now().after(PAUSE)).await;
            }
            Err(Error::OnceLost { .. }) => return Ok(None),
            Err(error) => return Err(Fail::from(error)),
        }
    }
}

/// Waits until the run that makes the result has it, or has given up.
async fn wait(ctx: &Ctx, asks: &Visit, place: &(String, Label)) -> Result<()> {
    let _related = ctx.cell.core.residents.relate(ctx.cell.id, Kin::Once);
    // It may have been settled before this run was among those that are told.
    ctx.cell.order(Orders::look_now);
    let on = On::Once(place.0.clone(), place.1.clone());
    ctx.cell
        .wait(asks, ctx.shielded, (Some(on), None), |state, _| {
            let arrival = state.inbox.settled(&place.0, &place.1)?;
            state.record(Entry::Noted { arrival });
            Some(())
        })
        .await
}

/// The right to execute a label's body in this run.
struct Turn<'a> {
    ctx: &'a Ctx,
    place: &'a (String, Label),
}

impl<'a> Turn<'a> {
    /// Takes it; nothing if somebody else had it and has just given it back.
    async fn take(ctx: &'a Ctx, place: &'a (String, Label)) -> Option<Self> {
        let mut waited = false;
        poll_fn(|cx| {
            let mut state = ctx.cell.lock();
            match state.onces().get_mut(place) {
                Some(waiting) => {
                    waited = true;
                    // However often it is polled meanwhile, it is woken once.
                    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                        waiting.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
                None if waited => Poll::Ready(None),
                None => {
                    state.onces().insert(place.clone(), Vec::new());
                    Poll::Ready(Some(Turn { ctx, place }))
                }
            }
        })
        .await
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.ctx.cell.lock().onces().remove(self.place);
        waiting.into_iter().flatten().for_each(std::task::Waker::wake);
    }
}
