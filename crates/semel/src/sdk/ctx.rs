//! The workflow's way to everything that is recorded.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::child::ChildBegin;
use super::hook::Hook;
use super::once::RunOnce;
use super::race::Either;
use super::remote::RemoteBegin;
use super::step::Step;
use crate::clock::Time;
use crate::engine::Startable;
use crate::engine::run::{Addition, Cell, Requested};
use crate::fail::{Fail, Result, fatal};
use crate::id::{RunId, WorkspaceId};
use crate::rules::entry::Entry;
use crate::rules::json::Payload;
use crate::rules::ledger::VisitRecord;
use crate::rules::path::{FIRST_TRY, PATCH, Path, Visit, path_key};
use crate::rules::step::StepState;
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

/// The context of a workflow. Everything that must happen once goes through it, under a name. In every execution of the run a
/// name must mean the same thing, so the code between two of these calls has to be deterministic: no clocks, no randomness,
/// no input or output of its own.
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

    /// Id of the run.
    pub fn run_id(&self) -> RunId {
        self.cell.id
    }

    /// The run that has started this one as its child; none if it is no child.
    pub fn parent(&self) -> Option<RunId> {
        self.cell.ledger(|ledger| ledger.run().new.parent)
    }

    /// The key of the run.
    pub fn key(&self) -> String {
        self.cell.ledger(|ledger| ledger.created().key.to_string())
    }

    /// Name of the workflow that this run executes.
    pub fn workflow(&self) -> String {
        self.cell.ledger(|ledger| ledger.created().workflow.to_string())
    }

    /// Version of the workflow that this run was started with. It never changes during the run, so code may branch on it.
    pub fn workflow_version(&self) -> String {
        self.cell.ledger(|ledger| ledger.created().workflow_version.to_string())
    }

    /// Time at which the run was created.
    pub fn started(&self) -> Time {
        self.cell.ledger(|ledger| ledger.run().new.created)
    }

    /// The tenant that this run belongs to.
    pub fn workspace(&self) -> WorkspaceId {
        self.cell.workspace
    }

    /// The state of this type that was given to [`Builder::state`](crate::engine::Builder::state).
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
        self.cell.state::<T>().unwrap_or_else(|| {
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
        self.inner_scope(name.as_ref(), None)
    }

    /// A scope for one pass of a loop: `ctx.scope_keyed("pack", "ink").step("label")` has the path `pack[ink]/label`.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, lines: Vec<String>) -> Result<()> {
    /// for line in &lines {
    ///     let pass = ctx.scope_keyed("pack", line);
    ///     pass.step("label").run(async |_| Ok(())).await?;
    ///     pass.step("ship").run(async |_| Ok(())).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scope_keyed(&self, name: impl AsRef<str>, key: impl fmt::Display) -> Self {
        self.inner_scope(name.as_ref(), Some(&key.to_string()))
    }

    fn inner_scope(&self, name: &str, key: Option<&str>) -> Self {
        let scope = match name.starts_with('@') {
            true => Err(reserved(name)),
            false => self.path(name, key),
        };
        Self { scope: Some(scope.map_err(Into::into)), ..self.clone() }
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
        self.cell.is_replaying()
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
            self.cell.asks(&step, || Requested::Skip);
            if self.cell.has_skipped(&step) {
                return Ok(());
            }
            let skipped = Entry::StepSkipped { step: step.clone(), reason: reason.into() };
            self.cell.add(&step, || Ok((Addition::Entry(skipped), ()))).await
        })
    }

    /// Whether this step is recorded as skipped since the run's start or its latest retry. It reads the ledger only: the
    /// step counts as visited when it is skipped again.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, is_late: bool) -> Result<()> {
    /// // What was decided in an earlier execution stays decided, whatever this one would decide.
    /// if ctx.has_skipped("letter")? || is_late {
    ///     return ctx.skip("letter", "it is late").await;
    /// }
    /// ctx.step("letter").run(async |_| Ok(())).await
    /// # }
    /// ```
    pub fn has_skipped(&self, name: &str) -> Result<bool> {
        let at = Visit::first(self.path(name, None).map_err(fatal)?);
        Ok(self
            .cell
            .ledger(|ledger| matches!(ledger.record_at(&at), Some(VisitRecord::Step(StepState::Skipped)))))
    }

    /// Whether something is recorded of the step with this name: that an attempt has begun, or its end. It reads the ledger only:
    /// the step counts as visited when it is run.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, by_mail: bool) -> Result<()> {
    /// // What has begun by mail goes on by mail, whatever this execution would choose.
    /// let name = if by_mail || ctx.has_begun("mail")? { "mail" } else { "letter" };
    /// ctx.step(name).run(async |_| Ok(())).await
    /// # }
    /// ```
    pub fn has_begun(&self, name: &str) -> Result<bool> {
        let at = Visit::first(self.path(name, None).map_err(fatal)?);
        Ok(self.cell.ledger(|ledger| matches!(ledger.record_at(&at), Some(VisitRecord::Step(_)))))
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
        Doing::new(async move { self.timer(&name, |run| run.after(time)).await })
    }

    /// Waits until it is this time.
    pub fn sleep_until(&self, name: impl Into<String>, at: Time) -> Doing<'_, ()> {
        let name = name.into();
        Doing::new(async move { self.timer(&name, |_| at).await })
    }

    async fn timer(&self, name: &str, at: impl FnOnce(&Cell) -> Time + Send) -> Result<()> {
        let timer = self.visit(name, None, false)?;
        self.cell.asks(&timer, || Requested::Timer);
        if self.fired(&timer) {
            return Ok(());
        }
        let at = self.set_timer(&timer, at).await?;
        self.cell.timer_fired(&timer, at, self.shielded).await
    }

    /// Whether a timer has fired.
    pub(crate) fn fired(&self, timer: &Visit) -> bool {
        let fired = self.cell.recorded(timer, "a timer", |record| match record {
            VisitRecord::Timer { fired, .. } => Some(*fired),
            _ => None,
        });
        fired.unwrap_or(false)
    }

    /// Sets a timer unless it runs already; gives its time.
    pub(crate) async fn set_timer(
        &self,
        timer: &Visit,
        at: impl FnOnce(&Cell) -> Time + Send,
    ) -> Result<Time> {
        let set = self.cell.ledger(|ledger| match ledger.record_at(timer) {
            Some(VisitRecord::Timer { at, .. }) => Some(*at),
            _ => None,
        });
        if let Some(at) = set {
            return Ok(at);
        }
        let set = || {
            let at = at(&self.cell);
            Ok((Addition::Entry(Entry::TimerSet { timer: timer.clone(), at }), at))
        };
        self.cell.add_unless_cancelled(timer, self.shielded, set).await
    }

    /// A place where the run waits for input from outside. It owns the token from the next durable write on, and until it
    /// is dropped.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, id: u32) -> Result<bool> {
    /// // Before the question is sent: an answer that comes at once is kept.
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
        let named = workflow.named(self.cell.registry());
        ChildBegin::new(self, named, Payload::of(&input))
    }

    /// Hands a step to a queue and waits for its result: the worker that takes it gets the input and the effect key of this
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
    ) -> RemoteBegin<'_, Out> {
        RemoteBegin::new(self, name.into(), queue.into(), Payload::of(&input))
    }

    /// Executes something once per label and gives its result from then on; other callers wait for it meanwhile.
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
        Doing::new(self.recorded("@now", name.into(), || self.cell.now()))
    }

    /// A random number from 0 up to 1, the same in every replay; under a name, as [`Ctx::now`].
    pub fn random(&self, name: impl Into<String>) -> Doing<'_, f64> {
        Doing::new(self.recorded("@random", name.into(), || self.cell.random()))
    }

    /// A fresh id, the same in every replay; under a name, as [`Ctx::now`].
    pub fn uuid(&self, name: impl Into<String>) -> Doing<'_, Uuid> {
        let name = name.into();
        Doing::new(async move {
            let make = || self.cell.clock().uuid().to_string();
            let text: String = self.recorded("@uuid", name, make).await?;
            Uuid::parse_str(&text).map_err(fatal)
        })
    }

    /// Records a value under a name, and gives the recorded one in every replay: for a decision that must stay as it was,
    /// whatever the code that made it does later. It is written with the next commit and costs none of its own.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, cents: u64) -> Result<()> {
    /// let large = ctx.record("is-large", cents > 100_000).await?;
    /// if large {
    ///     ctx.step("ask").run(async |_| Ok(())).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn record<T>(&self, name: impl Into<String>, value: T) -> Doing<'_, T>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let name = name.into();
        Doing::new(async move { self.recorded_at(self.visit(&name, None, false)?, || value).await })
    }

    /// Whether this run follows changed code: true for runs that get here for the first time with the code that has this
    /// call, false for runs that had already recorded something beyond this point. The answer is recorded, so it stays
    /// the same for the rest of the run. With it a workflow is changed while runs of it are open:
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// if ctx.patched("check-stock-first").await? {
    ///     ctx.step("stock").run(async |_| Ok(())).await?;
    /// }
    /// ctx.step("charge").run(async |_| Ok(())).await?;
    /// # Ok(())
    /// # }
    /// ```
    /// Once no run from before the change is open, the call and the old branch can be removed: a recorded answer that the
    /// code no longer asks for is not a divergence. A run that is restarted or retried keeps the old branch as long as
    /// something that it had recorded has not been visited again.
    pub fn patched(&self, name: impl Into<String>) -> Doing<'_, bool> {
        let name = name.into();
        Doing::new(async move {
            let at = Visit::first(self.path(PATCH, Some(&path_key(&name))).map_err(fatal)?);
            self.cell.refuse_inside(format_args!("patched {name}"))?;
            Ok(self.cell.follows_patch(&at).await)
        })
    }

    /// The time before the first try of the step with this name, the same in every replay. It is durable before that try
    /// begins. None if the step had begun before this was asked for: its first try may have been at any time. Code that no
    /// longer asks for a recorded time does not diverge.
    ///
    /// ```
    /// # use semel::{Ctx, Fail, Result};
    /// # use std::time::Duration;
    /// # async fn charge(_key: &str) -> Result<()> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// // The provider forgets keys after a day: what is older must not be sent again.
    /// let first = ctx.first_try("charge").await?;
    /// let is_young = |now| first.is_some_and(|first| now < first.after(Duration::from_hours(22)));
    /// ctx.step("charge")
    ///     .reconcile(async |attempt| {
    ///         if is_young(attempt.now()) { Ok(None) } else { Err(Fail::uncertain("its key is forgotten by now")) }
    ///     })
    ///     .run(async |attempt| charge(attempt.key()).await)
    ///     .await
    /// # }
    /// ```
    pub fn first_try(&self, step: impl Into<String>) -> Doing<'_, Option<Time>> {
        let name = step.into();
        Doing::new(async move {
            let at = Visit::first(self.path(FIRST_TRY, Some(&name)).map_err(fatal)?);
            let step = Visit::first(self.path(&name, None).map_err(fatal)?);
            let (is_recorded, has_begun) = self
                .cell
                .ledger(|ledger| (ledger.record_at(&at).is_some(), ledger.record_at(&step).is_some()));
            if has_begun && !is_recorded {
                return Ok(None);
            }
            self.recorded(FIRST_TRY, name, || self.cell.now()).await.map(Some)
        })
    }

    /// The effect key of the step, remote step or child of this name in this scope, at its first visit: the one that its attempts, the
    /// worker or the child get. For arguments that name it and are made before the step begins; nothing is recorded.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # use serde_json::json;
    /// # async fn workflow(ctx: Ctx, cents: u64) -> Result<String> {
    /// let reference = ctx.effect_key("charge")?;
    /// ctx.remote("charge", "payments", json!({"cents": cents, "reference": reference})).await
    /// # }
    /// ```
    pub fn effect_key(&self, step: &str) -> Result<String> {
        let visit = Visit::first(self.path(step, None).map_err(fatal)?);
        Ok(self.cell.ledger(|ledger| ledger.effect_key(&visit, "")).to_string())
    }

    async fn recorded<T>(&self, kind: &str, name: String, make: impl FnOnce() -> T + Send) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        self.recorded_at(self.visit_any(kind, Some(&name), false)?, make).await
    }

    async fn recorded_at<T>(&self, at: Visit, make: impl FnOnce() -> T + Send) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
    {
        self.cell.asks(&at, || Requested::Value);
        if let Some(value) = self.value_at(&at) {
            return read(&at, &value);
        }
        let record = || {
            let value = Payload::of(&make()).map_err(fatal)?;
            let entry = Entry::Recorded { at: at.clone(), value: value.clone(), failed: None };
            Ok((Addition::Entry(entry), value))
        };
        let value = self.cell.add(&at, record).await?;
        read(&at, &value)
    }

    /// A recorded value, if it is there.
    pub(crate) fn value_at(&self, at: &Visit) -> Option<Payload> {
        self.cell.recorded(at, "a recorded value", |record| match record {
            VisitRecord::Value(value) => Some(value.clone()),
            _ => None,
        })
    }

    /// Visits a name given by the user.
    pub(crate) fn visit(&self, name: &str, key: Option<&str>, indexed: bool) -> Result<Visit> {
        if name.starts_with('@') {
            return Err(fatal(reserved(name)));
        }
        self.visit_any(name, key, indexed)
    }

    /// Visits a name that may be one that users cannot give.
    pub(crate) fn visit_any(&self, name: &str, key: Option<&str>, indexed: bool) -> Result<Visit> {
        let path = self.path(name, key).map_err(fatal)?;
        self.cell.visit(path, indexed)
    }

    pub(super) fn path(&self, name: &str, key: Option<&str>) -> std::result::Result<Path, String> {
        let scope = match &self.scope {
            None => None,
            Some(Ok(scope)) => Some(scope),
            Some(Err(wrong)) => return Err(wrong.to_string()),
        };
        Path::build(scope, name, key).map_err(|error| error.to_string())
    }
}

fn reserved(name: &str) -> String {
    format!("{name:?} begins with @, which is for Semel's own names; choose another")
}

/// Reads what was recorded.
pub(crate) fn read<T: DeserializeOwned>(at: impl fmt::Display, value: &Payload) -> Result<T> {
    value.read().map_err(|error| {
        fatal(format_args!("what is recorded at {at} is of another type than the code expects: {error}"))
    })
}

/// Something that is made ready first and then awaited.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fail>> + Send + 'a>>;
