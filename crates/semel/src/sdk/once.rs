//! Once: one result per label, in the run or beyond it.

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::contain::{BodyScope, contained};
use super::ctx::{Boxed, Ctx, read};
use crate::clock::Time;
use crate::engine::run::{BeginEffect, OnceTurn, Requested};
use crate::fail::{Fail, Result, fatal};
use crate::rules::entry::{Class, Entry};
use crate::rules::json::Payload;
use crate::rules::key::Label;
use crate::rules::ledger::{Ledger, VisitRecord};
use crate::rules::once::{Ask, OnceAnswer, OnceScope};
use crate::rules::path::{Path, Visit, path_key};
use crate::sabotage::{self, Bug};

/// The scope in which a label has one result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Once {
    /// Within this run only; the default.
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
/// share, so that a replay gets the same. A retry of the run forgets it. Inside of a step nothing of that
/// is recorded: a replay is given the outcome of the step, and its next try may ask again.
async fn run<T: Serialize + DeserializeOwned + Send>(mut once: RunOnce<'_, T>) -> Result<T> {
    let label = Label::new(once.label.clone()).map_err(fatal)?;
    let scope = once.store_scope();
    let place = (scope.as_ref().map(OnceScope::text).unwrap_or_default(), label.clone());
    let (ctx, inside, asks) = (once.ctx, once.ctx.cell.is_inside(), once.visit(&label)?);
    let cell = &ctx.cell;
    cell.asks_once(&place);
    loop {
        if let Some(value) = cell.ledger(|ledger| ledger.once(&place.0, &place.1).cloned()) {
            return read(&label, &value);
        }
        if let Some(fail) = failure_at(ctx, &asks, &label) {
            return Err(fail);
        }
        let Some(_turn) = OnceTurn::take(cell, &place).await else { continue };
        let active = cell.begin(&asks, BeginEffect { shielded: ctx.shielded, intent: None }).await?;
        let began = cell.now();
        let made = match &scope {
            None => make(&mut once).await.map(OnceAnswer::Settled),
            Some(scope) => claim_or_make(&mut once, scope, &label).await,
        };
        match made {
            Ok(OnceAnswer::Settled(value)) => {
                let (scope, label) = place.clone();
                cell.record_end([Entry::Once { label, scope, value, inside }]);
            }
            Ok(OnceAnswer::InFlight(_)) => {
                drop(active);
                cell.once_settled(&asks, &place, ctx.shielded).await?;
            }
            Ok(other) => return Err(fatal(format_args!("`run_once` was answered with {other:?}"))),
            Err(fail) if inside => return Err(fail),
            Err(fail) => record_failure(ctx, &asks, &fail, began),
        }
    }
}

/// Calls the body.
async fn make<T: Serialize>(once: &mut RunOnce<'_, T>) -> Result<Payload> {
    let RunOnce { ctx, timeout, body, .. } = once;
    contained(BodyScope { ctx, span: None }, *timeout, async { body().await })
        .await
        .and_then(|value| Payload::of(&value).map_err(fatal))
}

fn record_failure(ctx: &Ctx, asks: &Visit, fail: &Fail, began: Time) {
    let (step, error) = (asks.clone(), fail.failure());
    let (class, at) = (Class::Keyed, Some(began));
    let started = Entry::StepStarted { step: step.clone(), attempt: 1, class, at, note: None };
    ctx.cell.record([started, Entry::StepFailed { step, attempt: 1, error, retry_at: None }]);
}

/// The recorded failure of a label.
fn failure_at(ctx: &Ctx, asks: &Visit, label: &Label) -> Option<Fail> {
    if !ctx.cell.ledger(|ledger| ledger.record_at(asks).is_some()) {
        return None;
    }
    ctx.cell.visit_again(asks);
    let failure = ctx.cell.recorded(asks, "`run_once`", |record| match record {
        VisitRecord::Step(step) => step.failure().cloned(),
        _ => None,
    });
    let fail = failure.map(|failure| Fail::recorded(label, &failure).at(ctx.cell.hears(asks)));
    ctx.cell.asks(asks, || Requested::Once);
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
                let named = |ledger: &Ledger| (ledger.created().scope.clone(), ledger.created().key.clone());
                let (scope, key) = self.ctx.cell.ledger(named);
                Some(OnceScope::Key(scope, key))
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
            // Another run may try.
            tell(ctx, scope, label, fence, |fence| Ask::Release { fence }).await?;
            Err(fail)
        }
    }
}

async fn claim(ctx: &Ctx, scope: &OnceScope, label: &Label) -> Result<OnceAnswer> {
    match ctx.cell.once(scope, label, Ask::Claim).await? {
        Some(answer) => Ok(answer),
        None => Err(fatal("a claim for `run_once` was answered as if there had been another")),
    }
}

/// Tells the store how a grant ended. A claim of this run that was long on its way may have made a later grant meanwhile,
/// that is not known here: the node that still drives the run takes it, and says the same under it.
async fn tell(
    ctx: &Ctx,
    scope: &OnceScope,
    label: &Label,
    mut fence: u64,
    what: impl Fn(u64) -> Ask + Send,
) -> Result<OnceAnswer> {
    loop {
        if let Some(answer) = ctx.cell.once(scope, label, what(fence)).await? {
            return Ok(answer);
        }
        if sabotage::commits(Bug::OnceLostForEver) || !ctx.cell.is_ours().await {
            // Another life of this run has taken it over: this one has nothing more to say.
            return std::future::pending().await;
        }
        fence = match claim(ctx, scope, label).await? {
            OnceAnswer::Mine(fence) => fence,
            answer => return Ok(answer),
        };
    }
}
