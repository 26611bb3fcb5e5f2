//! Steps: an effect, tried until it has an outcome, and what to do when a crash hides whether it took place.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Attempt;
use super::contain::{contained, guarded, watched};
use super::ctx::{Boxed, Ctx, Doing, read};
use super::fail::{Fail, Result};
use crate::clock::Time;
use crate::engine::replay::watch::Asked;
use crate::engine::state::State;
use crate::rules::entry::{Class, Entry, FailureKind};
use crate::rules::json::Payload;
use crate::rules::ledger::Record;
use crate::rules::path::Visit;
use crate::rules::retry::{Next, Retry};
use crate::rules::step::{self, AfterCrash};
use crate::sabotage::{self, Bug};

/// A step that has not begun.
#[must_use = "a step begins with `.run(..)`, and is over when that is awaited"]
pub struct Step {
    pub(crate) ctx: Ctx,
    name: String,
    key: Option<String>,
    indexed: bool,
    /// Apart, as it is seldom said: a step waits with all of this.
    retry: Option<Box<Retry>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) class: Class,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({})", self.name)
    }
}

impl Step {
    pub(crate) fn new(ctx: Ctx, name: String) -> Self {
        Self { ctx, name, key: None, indexed: false, retry: None, timeout: None, class: Class::Keyed }
    }

    /// Tells this step from others of the same name: its path is `name[key]`.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// for item in ["ink", "pens"] {
    ///     ctx.step("pack").key(item).run(async |_| Ok(())).await?; // `pack[ink]`, `pack[pens]`
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Counts the visits of this step: the second one is `name#2`.
    ///
    /// ```
    /// # use semel::{Ctx, Engine, Result};
    /// async fn look_twice(ctx: Ctx, (): ()) -> Result<(String, String)> {
    ///     let look = || ctx.step("look").indexed().run(async |attempt| Ok(attempt.path()));
    ///     Ok((look().await?, look().await?))
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<()> {
    /// # let engine = Engine::builder().store("memory:").workflow("look-twice", look_twice).open().await?;
    /// let paths = engine.start(look_twice, ()).await?.result().await?;
    /// assert_eq!(paths, ("look".to_owned(), "look#2".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn indexed(mut self) -> Self {
        self.indexed = true;
        self
    }

    /// How it is tried again. Three times, if nothing is said.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(Box::new(retry));
        self
    }

    /// How long one try may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Never runs again by itself once it has begun: its beginning is made durable first, and if its end stays hidden, or
    /// it fails, it is in doubt. Only [`fatal`](crate::fatal) and [`retry_after`](crate::FailExt::retry_after) say that the
    /// effect certainly did not take place: then the step has failed, or is tried again.
    ///
    /// ```
    /// # use semel::{Ctx, FailExt, Result};
    /// # use std::time::Duration;
    /// # struct Printer;
    /// # impl Printer { async fn print(&self, _: &str) -> std::io::Result<()> { Ok(()) } }
    /// # async fn connect() -> std::io::Result<Printer> { Ok(Printer) }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<()> {
    /// let print = async |_| {
    ///     // Nothing is printed yet: this is tried again.
    ///     let printer = connect().await.retry_after(Duration::from_secs(5))?;
    ///     // It may be printed, whatever the answer: an error leaves the step in doubt.
    ///     Ok(printer.print("Dear A").await?)
    /// };
    /// ctx.step("letter").at_most_once().run(print).await
    /// # }
    /// ```
    ///
    /// Who decides about a doubt: [`RunHandle::doubts`](crate::RunHandle::doubts).
    pub fn at_most_once(mut self) -> Self {
        self.class = Class::AtMostOnce;
        self
    }

    /// Its beginning is made durable first; if its end stays hidden, or it fails, this look-up is asked: what it finds is
    /// the result, if it finds nothing the step runs again (or has failed, if that was fatal), and if it fails the step is in
    /// doubt. It is not asked after [`retry_after`](crate::FailExt::retry_after), which says that nothing took place.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn find(_reference: &str) -> Result<Option<u32>> { Ok(None) }
    /// # async fn send(_text: &str, _reference: &str) -> Result<u32> { Ok(7) }
    /// # async fn workflow(ctx: Ctx, text: String) -> Result<u32> {
    /// // The key is what the provider keeps the letter under, and what it is asked for.
    /// ctx.step("letter")
    ///     .reconcile(async |attempt| find(attempt.key()).await)
    ///     .run(async |attempt| send(&text, attempt.key()).await)
    ///     .await
    /// # }
    /// ```
    pub fn reconcile<'a, T, L, Fut>(mut self, mut look_up: L) -> Reconciled<'a, T>
    where
        L: FnMut(Attempt) -> Fut + Send + 'a,
        Fut: Future<Output = Result<Option<T>>> + Send + 'a,
    {
        self.class = Class::Reconcile;
        Reconciled { step: self, look_up: Box::new(move |attempt| Box::pin(look_up(attempt))) }
    }

    /// Runs it: the body is called for each try, until there is an outcome.
    pub fn run<'a, T, B, Fut>(self, body: B) -> Doing<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Attempt) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        Doing::new(perform(self, body, None))
    }

    pub(crate) fn visit(&self) -> Result<Visit> {
        self.ctx.visit(&self.name, self.key.as_deref(), self.indexed)
    }
}

type LookUp<'a, T> = Box<dyn FnMut(Attempt) -> Boxed<'a, Option<T>> + Send + 'a>;

/// A step with a look-up that has not begun.
#[must_use = "a step begins with `.run(..)`, and is over when that is awaited"]
pub struct Reconciled<'a, T> {
    step: Step,
    look_up: LookUp<'a, T>,
}

impl<T> fmt::Debug for Reconciled<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.step.fmt(f)
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> Reconciled<'a, T> {
    /// Runs it: the body is called for each try, until there is an outcome.
    pub fn run<B, Fut>(self, body: B) -> Doing<'a, T>
    where
        B: FnMut(Attempt) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        Doing::new(perform(self.step, body, Some(self.look_up)))
    }
}

/// Where a step without an outcome stands, as far as the next move depends on it.
#[derive(Clone, Copy)]
pub(crate) enum At {
    /// The next try may begin at a time.
    Next(u32, Option<Time>),
    /// A try has begun, and its end is hidden.
    Hidden(u32, Class),
    /// There is nothing to be done here: somebody has to look at it.
    Stuck,
}

/// The outcome of a step, or where it stands.
pub(crate) fn look(ctx: &Ctx, visit: &Visit) -> ControlFlow<Result<Payload>, At> {
    let mut state = ctx.cell.lock();
    let step = match state.ledger.record_at(visit) {
        None => return ControlFlow::Continue(At::Next(1, None)),
        Some(Record::Step(step)) => step,
        Some(_) => {
            state.diverge(format!("`{visit}` is a step in the code, but not in the ledger"));
            return ControlFlow::Continue(At::Stuck);
        }
    };
    ControlFlow::Continue(match step {
        step::Step::Completed(value) => return ControlFlow::Break(Ok(value.clone())),
        step::Step::Failed(failure) | step::Step::GivenUp { error: failure, .. } => {
            let fail = Fail::recorded(visit, failure);
            return ControlFlow::Break(Err(fail.at(&mut state, visit)));
        }
        step::Step::Skipped => {
            state.diverge(format!("`{visit}` was skipped, but is a step in the code"));
            At::Stuck
        }
        step::Step::Retrying { attempt, at, .. } => At::Next(attempt + 1, Some(*at)),
        step::Step::Cleared { attempt } => At::Next(attempt + 1, None),
        step::Step::Started { attempt, class } => At::Hidden(*attempt, *class),
        step::Step::InDoubt { .. } => At::Stuck,
    })
}

/// A block, not an `async fn`: that would keep room for its arguments twice. Up to a kilobyte the allocator has steps'
/// futures at hand; what is larger it has to look for.
#[expect(clippy::manual_async_fn, reason = "the room that it takes")]
fn perform<'a, T, B, Fut>(
    step: Step,
    mut body: B,
    mut look_up: Option<LookUp<'a, T>>,
) -> impl Future<Output = Result<T>> + Send + 'a
where
    T: Serialize + DeserializeOwned + Send + 'a,
    B: FnMut(Attempt) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T>> + Send + 'a,
{
    async move {
        let visit = step.visit()?;
        step.ctx.cell.asks(&visit, || Asked::Step);
        let settled = loop {
            // A result is not kept while the step waits: it would take room in every one of them.
            let at = match look(&step.ctx, &visit) {
                ControlFlow::Break(settled) => break settled,
                ControlFlow::Continue(at) => at,
            };
            match at {
                At::Stuck => std::future::pending().await,
                At::Hidden(number, class) => {
                    let active = step.ctx.cell.begin(&visit, true, None).await?;
                    let again = match step::after_crash(class) {
                        AfterCrash::RunAgain => true,
                        // That a crash came before the effect is no failure of it, and costs none of its tries.
                        AfterCrash::Ask => {
                            sabotage::commits(Bug::ReconcileNeverAsks)
                                || Box::pin(ask(&step, &visit, number, &mut look_up)).await == Found::Nothing
                        }
                        AfterCrash::Doubt => {
                            doubt(&step, &visit, "a crash has hidden its end, or it was given up");
                            false
                        }
                    };
                    drop(active);
                    if again {
                        try_once(&step, &visit, (number + 1, true), &mut body, &mut look_up).await?;
                    }
                }
                At::Next(number, at) => {
                    if let Some(at) = at.filter(|_| !sabotage::commits(Bug::RetryAtOnce)) {
                        let wait = (None, Some(at));
                        let come = |_: &mut State, now| (now >= at).then_some(());
                        Box::pin(step.ctx.cell.wait(&visit, step.ctx.shielded, wait, come)).await?;
                    }
                    let number = (number, step.ctx.shielded);
                    try_once(&step, &visit, number, &mut body, &mut look_up).await?;
                }
            }
        };
        if settled.is_ok() && step.ctx.is_replaying() && sabotage::commits(Bug::ReplayCallsBodies) {
            body(Attempt::new(&step.ctx, visit.clone(), 1)).await?;
        }
        settled.and_then(|value| read(&visit, &value))
    }
}

/// Calls the body, and records what comes of it; unless the run was asked to end before, and this try is not shielded.
async fn try_once<'a, T, B, Fut>(
    step: &Step,
    visit: &Visit,
    (number, shielded): (u32, bool),
    body: &mut B,
    look_up: &mut Option<LookUp<'a, T>>,
) -> Result<()>
where
    T: Serialize + DeserializeOwned + Send + 'a,
    B: FnMut(Attempt) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T>> + Send + 'a,
{
    let keyed = step.class == Class::Keyed;
    let _active = step.ctx.cell.begin(visit, shielded, (!keyed).then_some((number, step.class))).await?;
    let attempt = Attempt::new(&step.ctx, visit.clone(), number);
    #[cfg(feature = "testing")]
    probed(&step.ctx, visit, crate::testing::Moment::Entered).await;
    let mut refused = None;
    // In its place at once, and not as a part of something else that is kept as well.
    let trying =
        pin!(guarded(&step.ctx, || body(attempt)).map_err(|fail| refused = Some(Box::new(fail))).ok());
    let result = match trying.as_pin_mut() {
        Some(trying) => watched(&step.ctx, step.timeout, trying).await,
        None => Err(*refused.expect("what was not begun was refused")),
    };
    #[cfg(feature = "testing")]
    probed(&step.ctx, visit, crate::testing::Moment::Returned).await;
    let result = match result.map(|value| Payload::of(&value)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(unkept)) if keyed => Err(super::fail::fatal(unkept)),
        Ok(Err(unkept)) => {
            doubt(step, visit, &format!("{UNKEPT}: {unkept}"));
            return Ok(());
        }
        Err(fail) => Err(fail),
    };
    if let (Err(fail), Class::Reconcile) = (&result, step.class)
        && fail.retry_after.is_none()
    {
        // Boxed, as everything that is rare: a step's future is as large as the largest thing it may wait for.
        if Box::pin(ask(step, visit, number, look_up)).await == Found::Nothing {
            let kind = if is_final(fail) { fail.kind } else { FailureKind::Retryable };
            finish(step, visit, number, None, Err(Fail::new(kind, fail)));
        }
        return Ok(());
    }
    let started = || Entry::StepStarted { step: visit.clone(), attempt: number, class: step.class };
    finish(step, visit, number, keyed.then(started), result);
    Ok(())
}

/// Why a step is in doubt that must not simply be called again.
const UNKEPT: &str = "it took place, but its result cannot be kept";

/// Whether no other try makes sense.
fn is_final(fail: &Fail) -> bool {
    matches!(fail.kind, FailureKind::Fatal | FailureKind::Cancelled)
}

/// A test may let the engine die here.
#[cfg(feature = "testing")]
pub(crate) async fn probed(ctx: &Ctx, visit: &Visit, moment: crate::testing::Moment) {
    if let Some(probe) = &ctx.cell.core.probe {
        probe.pass(visit, moment).await;
    }
}

/// Records the end of a try. `started` is its beginning, if that is not recorded yet.
pub(crate) fn finish(
    step: &Step,
    visit: &Visit,
    number: u32,
    started: Option<Entry>,
    result: Result<Payload>,
) {
    let cell = &step.ctx.cell;
    let ended = match result {
        Ok(value) => Entry::StepCompleted { step: visit.clone(), value },
        Err(fail) => match next(step, number, &fail) {
            Next::Doubt => Entry::StepInDoubt { step: visit.clone(), reason: fail.to_string() },
            next => {
                let retry_at = match next {
                    Next::After(pause) => Some(cell.core.after(fail.retry_after.unwrap_or(pause))),
                    _ => None,
                };
                Entry::StepFailed { step: visit.clone(), attempt: number, error: fail.failure(), retry_at }
            }
        },
    };
    // A failure may be that of the code which does not fit: mended, it tries again.
    let failed = matches!(ended, Entry::StepFailed { .. });
    let mut state = cell.lock();
    for entry in started.into_iter().chain([ended]) {
        if failed { state.record(entry) } else { state.record_end(entry) }
    }
}

/// What follows a failed try.
fn next(step: &Step, number: u32, fail: &Fail) -> Next {
    // What ended it otherwise, a cancel included, may have come after the effect, which must not take place twice.
    let certain = fail.is_fatal() || fail.retry_after.is_some();
    if step.class == Class::AtMostOnce && !certain {
        return Next::Doubt;
    }
    let retry = step.retry.as_deref().copied().unwrap_or_default();
    retry.next(number, &fail.failure(), step.ctx.cell.core.random())
}

pub(crate) fn doubt(step: &Step, visit: &Visit, reason: &str) {
    let doubted = Entry::StepInDoubt { step: visit.clone(), reason: reason.to_owned() };
    step.ctx.cell.lock().record_end(doubted);
    step.ctx.cell.nudge();
}

/// What came of asking.
#[derive(PartialEq)]
enum Found {
    /// Something, and it is recorded: a result, or a doubt.
    Something,
    /// The effect did not take place.
    Nothing,
}

/// Asks the provider what became of a try that has no known end.
async fn ask<T: Serialize>(
    step: &Step,
    visit: &Visit,
    number: u32,
    look_up: &mut Option<LookUp<'_, T>>,
) -> Found {
    let Some(look_up) = look_up else {
        doubt(step, visit, "its end is hidden, and the code no longer says whom to ask");
        return Found::Something;
    };
    let attempt = Attempt::new(&step.ctx, visit.clone(), number);
    let answer = contained(&step.ctx, step.timeout, async { look_up(attempt).await }).await;
    match answer {
        Ok(Some(value)) => match Payload::of(&value) {
            Ok(value) => finish(step, visit, number, None, Ok(value)),
            Err(unkept) => doubt(step, visit, &format!("{UNKEPT}: {unkept}")),
        },
        Ok(None) => return Found::Nothing,
        Err(_) if sabotage::commits(Bug::UnknownIsAbsent) => return Found::Nothing,
        Err(unknown) => {
            doubt(step, visit, &format!("its end is hidden, and the look-up failed: {unknown}"));
        }
    }
    Found::Something
}
