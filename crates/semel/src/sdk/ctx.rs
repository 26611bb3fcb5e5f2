//! The workflow's way to everything that is recorded.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::child::ChildBegin;
use super::fail::{Fail, Result, fatal};
use super::hook::Hook;
use super::once::RunOnce;
use super::race::Either;
use super::remote::Remote;
use super::step::Step;
use super::workflow::Startable;
use crate::clock::Time;
use crate::engine::Core;
use crate::engine::cell::Cell;
use crate::engine::replay::watch::Asked;
use crate::engine::state::{Phase, State};
use crate::id::{RunId, base32};
use crate::rules::entry::Entry;
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::ledger::Record;
use crate::rules::path::{MAX_PART, Name, Path, Visit};
use crate::rules::step;
use crate::sabotage::{self, Bug};

/// Something of a workflow that is under way when it is awaited.
#[must_use = "nothing happens before it is awaited"]
pub struct Doing<'a, T>(Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>);

impl<'a, T> Doing<'a, T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'a) -> Self {
        Self(Box::pin(future))
    }
}

impl<T> Future for Doing<'_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        self.0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Doing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Doing")
    }
}

/// What a workflow is given: everything it does that must happen once goes through here, under a name. A name stands for
/// the same thing in every execution of the run, so between two of these calls the code must do the same each time: no
/// clocks, no randomness, no input or output of its own.
#[derive(Clone)]
pub struct Ctx {
    pub(crate) cell: Arc<Cell>,
    scope: Option<Result<Path, Arc<str>>>,
    pub(crate) shielded: bool,
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ctx({})", self.cell.id)
    }
}

impl Ctx {
    pub(crate) fn new(cell: Arc<Cell>) -> Self {
        Self { cell, scope: None, shielded: false }
    }

    /// The run.
    pub fn run_id(&self) -> RunId {
        self.cell.id
    }

    /// The key of the run.
    pub fn key(&self) -> String {
        self.cell.lock().ledger.created().key.to_string()
    }

    /// What was given to the engine with [`Builder::state`](crate::engine::Builder::state).
    ///
    /// ```
    /// # struct App { currency: &'static str }
    /// # fn workflow(ctx: semel::Ctx) -> String {
    /// let app = ctx.state::<App>();
    /// format!("7 {}", app.currency)
    /// # }
    /// ```
    ///
    /// # Panics
    /// If nothing of this type was. The run fails, the process goes on.
    pub fn state<T: Send + Sync + 'static>(&self) -> Arc<T> {
        self.cell.core.state::<T>().unwrap_or_else(|| {
            panic!(
                "the engine has no state of the type {}: add `.state(..)` to its builder",
                std::any::type_name::<T>()
            )
        })
    }

    /// The same run, with names of its own: `ctx.scope("left").step("pack")` has the path `left/pack`.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// async fn ship(ctx: Ctx, item: &str) -> Result<usize> {
    ///     ctx.step("pack").run(async |_| Ok(item.len())).await
    /// }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<usize> {
    /// // `left/pack` and `right/pack`, whichever comes first.
    /// let (left, right) = tokio::join!(ship(ctx.scope("left"), "ink"), ship(ctx.scope("right"), "pens"));
    /// # Ok(left? + right?)
    /// # }
    /// ```
    #[must_use]
    pub fn scope(&self, name: impl AsRef<str>) -> Self {
        let scope = Name::new(name.as_ref()).and_then(|name| match &self.scope {
            Some(Ok(path)) => path.join(&name),
            _ => Ok(Path::of(&name)),
        });
        let scope = match &self.scope {
            Some(Err(wrong)) => Err(wrong.clone()),
            _ => scope.map_err(|error| error.to_string().into()),
        };
        Self { scope: Some(scope), ..self.clone() }
    }

    /// The same run, for cleaning up: what is done through it goes on although the run was asked to end.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// ctx.step("book").run(async |_| Ok(())).await?;
    /// if let Err(fail) = ctx.sleep("until-departure", Duration::from_hours(48)).await {
    ///     // Asked to end: a step of `ctx` itself would fail as the sleep has.
    ///     ctx.cleanup().step("unbook").run(async |_| Ok(())).await?;
    ///     return Err(fail);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cleanup(&self) -> Self {
        Self { shielded: !sabotage::commits(Bug::CleanUpIsCancelled), ..self.clone() }
    }

    /// Whether recorded results are being given, and nothing new is done.
    pub fn is_replaying(&self) -> bool {
        matches!(self.cell.lock().phase, Phase::Replaying | Phase::Dry)
    }

    /// Writes a line to the log, with the run's id, unless recorded results are being given: a rebuild does not repeat what
    /// was logged. That is no promise of exactly one line: a crash, or an operator who settles a step, may come between.
    pub fn log(&self, message: impl fmt::Display) {
        if !self.is_replaying() {
            tracing::info!(run = %self.cell.id, "{message}");
        }
    }

    /// A unit of work with an effect. Say more about it, then [`Step::run`] it.
    ///
    /// ```
    /// # use semel::{Ctx, Result, Retry};
    /// # use std::time::Duration;
    /// # async fn charge(cents: u64, _key: &str) -> Result<u64> { Ok(cents) }
    /// # async fn workflow(ctx: Ctx, cents: u64) -> Result<u64> {
    /// let paid = ctx
    ///     .step("charge")
    ///     .retry(Retry::exponential().max_attempts(5))
    ///     .timeout(Duration::from_secs(10))
    ///     .run(async |attempt| charge(cents, attempt.key()).await)
    ///     .await?;
    /// # Ok(paid)
    /// # }
    /// ```
    pub fn step(&self, name: impl Into<String>) -> Step {
        Step::new(self.clone(), name.into())
    }

    /// Notes that a step is not needed, and why.
    pub fn skip<'a>(&'a self, name: &'a str, reason: impl Into<String> + Send + 'a) -> Doing<'a, ()> {
        Doing::new(async move {
            let step = self.visit(name, None, false)?;
            self.cell.asks(&step, || Asked::Skip);
            if !self.is_noted(&step) {
                let skipped = Entry::StepSkipped { step: step.clone(), reason: reason.into() };
                self.cell.live_then(&step, |state| state.record(skipped)).await;
            }
            Ok(())
        })
    }

    /// Whether there is nothing more to be noted of a step that is skipped: it was noted, or the step took place in an
    /// earlier life of the run, which had its reasons, or later things are recorded, and this makes no difference to them. A
    /// dry run goes on also if the step took place, to see what else differs.
    fn is_noted(&self, step: &Visit) -> bool {
        let mut state = self.cell.lock();
        match state.ledger.record_at(step) {
            None => state.is_behind(),
            Some(Record::Step(step::Step::Skipped)) => true,
            Some(_) if state.ledger.is_carried(step) || state.phase == Phase::Dry => true,
            Some(_) => {
                state.diverge(format!("`{step}` is skipped in the code, but not in the ledger"));
                false
            }
        }
    }

    /// Waits this long. The run needs no memory meanwhile.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// for day in 1..=3 {
    ///     // In a loop each has a name of its own.
    ///     ctx.sleep(format!("day-{day}"), Duration::from_hours(24)).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn sleep(&self, name: impl Into<String>, time: Duration) -> Doing<'_, ()> {
        let name = name.into();
        Doing::new(async move { self.timer(&name, |core| core.after(time)).await })
    }

    /// Waits until it is this time.
    pub fn sleep_until(&self, name: impl Into<String>, at: Time) -> Doing<'_, ()> {
        let name = name.into();
        Doing::new(async move { self.timer(&name, |_| at).await })
    }

    async fn timer(&self, name: &str, at: impl FnOnce(&Core) -> Time + Send) -> Result<()> {
        let timer = self.visit(name, None, false)?;
        self.cell.asks(&timer, || Asked::Timer);
        if self.fired(&timer) {
            return Ok(());
        }
        let at = self.set_timer(&timer, at).await?;
        let fired = |state: &mut State, now: Time| {
            let early = if sabotage::commits(Bug::TimersFireEarly) { 500 } else { 0 };
            (now.0 + early >= at.0).then(|| state.record(Entry::TimerFired { timer: timer.clone() }))
        };
        self.cell.wait(&timer, self.shielded, (None, Some(at)), fired).await
    }

    /// Whether a timer has fired.
    pub(crate) fn fired(&self, timer: &Visit) -> bool {
        let mut state = self.cell.lock();
        match state.ledger.record_at(timer) {
            None => false,
            Some(Record::Timer { fired, .. }) => *fired,
            Some(_) => {
                state.diverge(format!("`{timer}` is a timer in the code, but not in the ledger"));
                false
            }
        }
    }

    /// Sets a timer unless it runs already; gives its time.
    pub(crate) async fn set_timer(
        &self,
        timer: &Visit,
        at: impl FnOnce(&Core) -> Time + Send,
    ) -> Result<Time> {
        if let Some(Record::Timer { at, .. }) = self.cell.lock().ledger.record_at(timer) {
            return Ok(*at);
        }
        self.cell.check_cancelled(self.shielded)?;
        let set = |state: &mut State| {
            state.check_cancelled(self.shielded)?;
            let at = at(&self.cell.core);
            state.record(Entry::TimerSet { timer: timer.clone(), at });
            Ok(at)
        };
        self.cell.live_then(timer, set).await
    }

    /// A place where the run waits for input from outside. It owns the token from the next durable write on, and until it
    /// is dropped.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, id: u32) -> Result<bool> {
    /// // Before anybody is asked: an answer that comes at once is kept.
    /// let mut approval = ctx.hook::<bool>(format!("order:{id}"));
    /// ctx.step("ask").run(async |_| Ok(println!("please answer order:{id}"))).await?;
    /// approval.recv().await
    /// # }
    /// ```
    pub fn hook<T: DeserializeOwned>(&self, token: impl Into<String>) -> Hook<T> {
        Hook::open(self.clone(), token.into())
    }

    /// Starts another run, and belongs to it: it hears of its end, and tells it of its own cancel. A run that fails or times
    /// out tells its children nothing: they go on, and a retry of the run finds them again.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn price_of(_: Ctx, item: String) -> Result<u64> { Ok(item.len() as u64) }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<u64> {
    /// // Both are under way before one is waited for.
    /// let ink = ctx.child(price_of, "ink".to_owned()).key("ink").await?;
    /// let pens = ctx.child(price_of, "pens".to_owned()).key("pens").await?;
    /// let total = ink.result().await? + pens.result().await?;
    /// # Ok(total)
    /// # }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a workflow and its input are handed over")]
    pub fn child<W, In>(&self, workflow: W, input: In) -> ChildBegin<'_, W::Out>
    where
        W: Startable<In>,
        In: Serialize,
    {
        let named = workflow.named(&self.cell.core.registry);
        ChildBegin::new(self, named, Payload::of(&input))
    }

    /// Hands a step to a queue and waits for its result: whoever takes it is given the input and the effect key of this
    /// step, the same over all tries. Say more about it, then await it.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, cents: u64) -> Result<String> {
    /// let receipt: String = ctx.remote("charge", "payments", cents).timeout(Duration::from_secs(30)).await?;
    /// # Ok(receipt)
    /// # }
    /// ```
    pub fn remote<Out>(
        &self,
        name: impl Into<String>,
        queue: impl Into<String>,
        input: impl Serialize,
    ) -> Remote<'_, Out> {
        Remote::new(self, name.into(), queue.into(), Payload::of(&input))
    }

    /// Executes something once per label and gives its result from then on; whoever asks meanwhile waits for it.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<f64> {
    /// // As often as this is asked for, in steps or between them: one execution.
    /// let rate = ctx.run_once("rate", async || Ok(0.94)).await?;
    /// # Ok(rate)
    /// # }
    /// ```
    pub fn run_once<'a, T, B, Fut>(&'a self, label: impl Into<String>, body: B) -> RunOnce<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        RunOnce::new(self, label.into(), body)
    }

    /// Whichever of two comes first. Which one it was is recorded; the other is dropped.
    ///
    /// A retry of the run keeps the winner, unless the winner failed by a step, a child, or a token that another run owns, or
    /// such a failure was the last outcome before its end: that is tried again, and the race is decided anew. A failure that
    /// the winner handled before it did something else does not count.
    ///
    /// ```
    /// # use semel::{Ctx, Result, sdk::Either};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<Option<u32>> {
    /// let mut offers = ctx.hook::<u32>("offers");
    /// match ctx.race("first", offers.recv(), ctx.sleep("patience", Duration::from_hours(1))).await? {
    ///     Either::A(offer) => Ok(Some(offer?)),
    ///     Either::B(slept) => slept.map(|()| None),
    /// }
    /// # }
    /// ```
    pub fn race<'a, A, B>(&'a self, name: &'a str, a: A, b: B) -> Doing<'a, Either<A::Output, B::Output>>
    where
        A: Future<Output: Send> + Send + 'a,
        B: Future<Output: Send> + Send + 'a,
    {
        Doing::new(super::race::race(self, name, a, b))
    }

    /// Whichever of several comes first, and its place among them.
    pub fn race_all<'a, F>(&'a self, name: &'a str, all: Vec<F>) -> Doing<'a, (usize, F::Output)>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        Doing::new(super::race::race_all(self, name, all))
    }

    /// The time now, the same in every replay. It has a name, as a step has: the order in which branches of a workflow come
    /// by is another in a replay, and each must find its own.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<String> {
    /// let (ordered, invoice) = (ctx.now("ordered").await?, ctx.uuid("invoice").await?);
    /// let sample = ctx.random("sample").await? < 0.01;
    /// # Ok(format!("{ordered} {invoice} {sample}"))
    /// # }
    /// ```
    pub fn now(&self, name: impl Into<String>) -> Doing<'_, Time> {
        Doing::new(self.recorded("@now", name.into(), || self.cell.core.now()))
    }

    /// A random number from 0 up to 1, the same in every replay; under a name, as [`Ctx::now`].
    pub fn random(&self, name: impl Into<String>) -> Doing<'_, f64> {
        Doing::new(self.recorded("@random", name.into(), || self.cell.core.random()))
    }

    /// A fresh id, the same in every replay; under a name, as [`Ctx::now`].
    pub fn uuid(&self, name: impl Into<String>) -> Doing<'_, Uuid> {
        let name = name.into();
        Doing::new(async move {
            let make = || self.cell.core.clock.uuid().to_string();
            let text: String = self.recorded("@uuid", name, make).await?;
            Uuid::parse_str(&text).map_err(fatal)
        })
    }

    async fn recorded<T>(&self, kind: &str, name: String, make: impl FnOnce() -> T + Send) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        let at = self.visit_any(kind, Some(&name), false)?;
        self.cell.asks(&at, || Asked::Value);
        if let Some(value) = self.value_at(&at) {
            return read(&at, &value);
        }
        let record = |state: &mut State| {
            let value = Payload::of(&make())?;
            state.record(Entry::Recorded { at: at.clone(), value: value.clone(), failed: None });
            Ok(value)
        };
        let value = self.cell.live_then(&at, record).await.map_err(|e: InvalidJson| fatal(e))?;
        read(&at, &value)
    }

    /// A recorded value, if it is there.
    pub(crate) fn value_at(&self, at: &Visit) -> Option<Payload> {
        let mut state = self.cell.lock();
        match state.ledger.record_at(at) {
            None => None,
            Some(Record::Value(value)) => Some(value.clone()),
            Some(_) => {
                state.diverge(format!("`{at}` is a recorded value in the code, but not in the ledger"));
                None
            }
        }
    }

    /// Visits a name given by the user.
    pub(crate) fn visit(&self, name: &str, key: Option<&str>, indexed: bool) -> Result<Visit> {
        if name.starts_with('@') {
            return Err(fatal(format_args!(
                "{name:?} begins with @, which is for Semel's own names; choose another"
            )));
        }
        self.visit_any(name, key, indexed)
    }

    /// Visits a name that may be one that users cannot give.
    pub(crate) fn visit_any(&self, name: &str, key: Option<&str>, indexed: bool) -> Result<Visit> {
        let path = self.path(name, key).map_err(fatal)?;
        self.cell.visit(path, indexed)
    }

    fn path(&self, name: &str, key: Option<&str>) -> std::result::Result<Path, String> {
        let scope = match &self.scope {
            None => None,
            Some(Ok(scope)) => Some(scope),
            Some(Err(wrong)) => return Err(wrong.to_string()),
        };
        Path::build(scope, name, key).map_err(|error| error.to_string())
    }
}

/// A text as the key of a path: as it is, if that can be, else by its hash.
pub(super) fn path_key(text: &str) -> String {
    let plain = !text.contains(['/', '[', ']', '#', '~']) && text.chars().count() <= MAX_PART;
    if plain { text.to_owned() } else { format!("~{}", base32(&Sha256::digest(text.as_bytes())[..20])) }
}

/// Reads what was recorded.
pub(crate) fn read<T: DeserializeOwned>(at: impl fmt::Display, value: &Payload) -> Result<T> {
    value.read().map_err(|error| {
        fatal(format_args!("what is recorded at {at} is of another type than the code expects: {error}"))
    })
}

/// Something that is made ready first and then awaited.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fail>> + Send + 'a>>;
