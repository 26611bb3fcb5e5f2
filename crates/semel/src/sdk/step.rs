//! Steps: an effect, tried until it has an outcome, and what to do when a crash hides whether it took place.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Attempt;
use super::contain::{BodyScope, contained, step_span, watched};
use super::ctx::{Boxed, Ctx, Doing, read};
use super::profiled::Profiled;
use crate::clock::Time;
use crate::engine::run::{BeginEffect, Intent, Requested};
use crate::fail::{Fail, Result, fatal};
use crate::profiles::Profile;
use crate::rules::entry::{Class, Entry, check_note};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::ledger::VisitRecord;
use crate::rules::path::Visit;
use crate::rules::retry::{Retry, RetryDecision};
use crate::rules::step::{self, AfterCrash, FailedAttempt, NextMove, StepState};
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
    /// Apart, for the same reason. Refused when the step begins, if it is refused at all.
    note: Option<Box<std::result::Result<Payload, InvalidJson>>>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Step({})", self.name)
    }
}

impl Step {
    pub(crate) fn new(ctx: Ctx, name: String) -> Self {
        let (key, retry, timeout, note) = (None, None, None, None);
        Self { ctx, name, key, indexed: false, retry, timeout, class: Class::Keyed, note }
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

    /// What the step is for, for the people who read the run: it is recorded with the beginning of each attempt, and shown
    /// with the step. It is what a person sees who has to decide about a doubt. At most one kilobyte of JSON; a longer note is an error of
    /// the step. It is not part of the step's identity and may differ in a replay.
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn transfer(_: &str, _: u64) -> Result<()> { Ok(()) }
    /// # async fn workflow(ctx: Ctx, (to, cents): (String, u64)) -> Result<()> {
    /// let note = format!("{}.{:02} EUR to {to}", cents / 100, cents % 100);
    /// ctx.step("transfer").at_most_once().note(&note).run(async |_| transfer(&to, cents).await).await
    /// # }
    /// ```
    pub fn note<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        let note = Payload::of(value).and_then(|note| check_note(&note).map(|()| note));
        self.note = Some(Box::new(note));
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
    ///
    /// A body must not change variables of the workflow. After a crash the body is not called again if its result is
    /// recorded, so the change would be missing. The compiler refuses it with
    ///
    /// - *async closure does not implement `FnMut` because it captures state from its environment*
    ///   (`async |attempt| ..`), or
    /// - *captured variable cannot escape `FnMut` closure body* (`|attempt| async { .. }`).
    ///
    /// ```compile_fail
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<u32> {
    /// let mut sum = 0;
    /// ctx.step("count").run(async |_| { sum += 1; Ok(()) }).await?; // does not compile
    /// # Ok(sum)
    /// # }
    /// ```
    ///
    /// Return the value, so that it is recorded, and change the variable after the step:
    ///
    /// ```
    /// # use semel::{Ctx, Result};
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<u32> {
    /// let mut sum = 0;
    /// sum += ctx.step("count").run(async |_| Ok(1)).await?;
    /// # Ok(sum)
    /// # }
    /// ```
    pub fn run<'a, T, B, Fut>(self, body: B) -> Doing<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Attempt) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        Doing::new(perform(self, body, None))
    }

    /// The name as the code gives it, for errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives it the class that follows from what a provider can do about a repeated request: see [`profiles`](crate::profiles).
    pub fn profile(self, profile: &'static Profile) -> Profiled {
        Profiled::new(self, profile)
    }

    /// Its name, if it has no key.
    pub(super) fn plain_name(&self) -> Option<String> {
        (self.key.is_none() && !self.indexed).then(|| self.name.clone())
    }

    pub(super) fn max_attempts(&self) -> u32 {
        self.retry.as_deref().copied().unwrap_or_default().max_attempts
    }

    /// Visits its path. A note that cannot be kept is an error of the step before it begins.
    pub(crate) fn visit(&self) -> Result<Visit> {
        let visit = self.ctx.visit(&self.name, self.key.as_deref(), self.indexed)?;
        match self.note.as_deref() {
            Some(Err(unkept)) => {
                Err(fatal(format_args!("`{visit}` has a note that cannot be kept: {unkept}")))
            }
            _ => Ok(visit),
        }
    }

    fn note_to_record(&self) -> Option<&Payload> {
        self.note.as_deref().and_then(|note| note.as_ref().ok())
    }

    /// The entry of an attempt whose body began at a time, for the commit of its end.
    pub(crate) fn began(&self, visit: &Visit, attempt: u32, class: Class, at: Time) -> Entry {
        let note = self.note_to_record().cloned();
        Entry::StepStarted { step: visit.clone(), attempt, class, at: Some(at), note }
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

/// The outcome of a step, or what its code does next.
pub(crate) fn look(ctx: &Ctx, visit: &Visit) -> ControlFlow<Result<Payload>, NextMove> {
    let found = ctx.cell.ledger(|ledger| match ledger.record_at(visit) {
        None => Ok(ControlFlow::Continue(StepState::next_move(None))),
        Some(VisitRecord::Step(StepState::Completed(value))) => Ok(ControlFlow::Break(Ok(value.clone()))),
        Some(VisitRecord::Step(StepState::Skipped)) => {
            Err(format!("`{visit}` was skipped, but is a step in the code"))
        }
        Some(VisitRecord::Step(step)) => Ok(match step.failure() {
            Some(failure) => ControlFlow::Break(Err(Fail::recorded(visit, failure))),
            None => ControlFlow::Continue(StepState::next_move(Some(step))),
        }),
        Some(_) => Err(format!("`{visit}` is a step in the code, but not in the ledger")),
    });
    match found {
        Ok(ControlFlow::Break(Err(fail))) => ControlFlow::Break(Err(fail.at(ctx.cell.hears(visit)))),
        Ok(found) => found,
        Err(why) => {
            ctx.cell.diverge(why);
            ControlFlow::Continue(NextMove::Nothing)
        }
    }
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
        step.ctx.cell.asks(&visit, || Requested::Step);
        let settled = loop {
            // A result is not kept while the step waits: it would take room in every one of them.
            let at = match look(&step.ctx, &visit) {
                ControlFlow::Break(settled) => break settled,
                ControlFlow::Continue(at) => at,
            };
            match at {
                NextMove::Nothing => std::future::pending().await,
                NextMove::FindOut(number, class) => {
                    let how = BeginEffect { shielded: true, intent: None };
                    let active = step.ctx.cell.begin(&visit, how).await?;
                    let again = match step::after_crash(class) {
                        AfterCrash::RunAgain => true,
                        // That a crash came before the effect is no failure of it, and costs none of its tries.
                        AfterCrash::Ask => {
                            sabotage::commits(Bug::ReconcileNeverAsks)
                                || Box::pin(ask(&step, &visit, number, &mut look_up)).await
                                    == LookedUp::Nothing
                        }
                        AfterCrash::Doubt => {
                            doubt(&step, &visit, "a crash has hidden its end, or it was given up");
                            false
                        }
                    };
                    drop(active);
                    if again {
                        let how = Try { number: number + 1, shielded: true, cleared: false };
                        try_once(&step, &visit, how, &mut body, &mut look_up).await?;
                    }
                }
                NextMove::Attempt(number, at) => {
                    if let Some(at) = at.filter(|_| !sabotage::commits(Bug::RetryAtOnce)) {
                        Box::pin(step.ctx.cell.pause(&visit, at, step.ctx.shielded)).await?;
                    }
                    // A later try has a time, unless an operator has cleared the way for it.
                    let cleared = number > 1 && at.is_none();
                    let how = Try { number, shielded: step.ctx.shielded, cleared };
                    try_once(&step, &visit, how, &mut body, &mut look_up).await?;
                }
            }
        };
        if settled.is_ok() && step.ctx.is_replaying() && sabotage::commits(Bug::ReplayCallsBodies) {
            body(Attempt::new(&step.ctx, visit.clone(), 1)).await?;
        }
        settled.and_then(|value| read(&visit, &value))
    }
}

/// A try that is about to be made.
#[derive(Clone, Copy)]
struct Try {
    number: u32,
    /// Whether it is made although the run was asked to end.
    shielded: bool,
    /// Whether an operator has said that the one before did not take place.
    cleared: bool,
}

/// Calls the body, and records what comes of it; unless the run was asked to end before, and this try is not shielded.
async fn try_once<'a, T, B, Fut>(
    step: &Step,
    visit: &Visit,
    Try { number, shielded, cleared }: Try,
    body: &mut B,
    look_up: &mut Option<LookUp<'a, T>>,
) -> Result<()>
where
    T: Serialize + DeserializeOwned + Send + 'a,
    B: FnMut(Attempt) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T>> + Send + 'a,
{
    let keyed = step.class == Class::Keyed;
    let intent = Intent { attempt: number, class: step.class, note: step.note_to_record() };
    let how = BeginEffect { shielded, intent: (!keyed).then_some(intent) };
    let _active = step.ctx.cell.begin(visit, how).await?;
    let began = step.ctx.cell.now();
    let attempt = Attempt::new(&step.ctx, visit.clone(), number).after_clearing(cleared);
    #[cfg(feature = "testing")]
    probed(&step.ctx, visit, crate::testing::Moment::Entered).await;
    let (mut refused, scope) = (None, BodyScope { ctx: &step.ctx, span: step_span(visit, number) });
    // Pinned where it is made: moved into another future, it would take its room twice.
    let trying = pin!(scope.guarded(|| body(attempt)).map_err(|fail| refused = Some(Box::new(fail))).ok());
    let result = match trying.as_pin_mut() {
        Some(trying) => watched(scope, step.timeout, trying).await,
        None => Err(*refused.expect("what was not begun was refused")),
    };
    #[cfg(feature = "testing")]
    probed(&step.ctx, visit, crate::testing::Moment::Returned).await;
    let result = match result.map(|value| Payload::of(&value)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(unkept)) if keyed => Err(fatal(unkept)),
        Ok(Err(unkept)) => {
            doubt(step, visit, &format!("{UNKEPT}: {unkept}"));
            return Ok(());
        }
        Err(fail) => Err(fail),
    };
    let result = match result {
        Err(fail) if step::is_looked_up(step.class, fail.retry_after) => {
            // Boxed, as everything that is rare: a step's future is as large as the largest thing it may wait for.
            if Box::pin(ask(step, visit, number, look_up)).await == LookedUp::Nothing {
                let kind = step::kind_if_absent(fail.kind);
                let absent = fail.of_kind(kind);
                finish(step, visit, number, None, Err(absent));
            }
            return Ok(());
        }
        result => result,
    };
    let started = || step.began(visit, number, step.class, began);
    finish(step, visit, number, keyed.then(started), result);
    Ok(())
}

/// Why a step is in doubt that must not simply be called again.
const UNKEPT: &str = "it took place, but its result cannot be kept";

/// A test may let the engine die here.
#[cfg(feature = "testing")]
pub(crate) async fn probed(ctx: &Ctx, visit: &Visit, moment: crate::testing::Moment) {
    if let Some(probe) = ctx.cell.probe() {
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
    let ended = match result {
        Ok(value) => Entry::StepCompleted { step: visit.clone(), value },
        Err(fail) => failed(step, visit, number, &fail),
    };
    // A failure may be that of the code which does not fit: mended, it tries again.
    let may_be_dropped = matches!(ended, Entry::StepFailed { .. });
    let (cell, entries) = (&step.ctx.cell, started.into_iter().chain([ended]));
    if may_be_dropped { cell.record(entries) } else { cell.record_end(entries) }
}

/// The entry of an attempt that has failed. What the log is told of the error are kind and code: its message may hold what
/// users have handed over.
fn failed(step: &Step, visit: &Visit, attempt: u32, fail: &Fail) -> Entry {
    let (ctx, error) = (&step.ctx, fail.failure());
    let failed =
        FailedAttempt { class: step.class, number: attempt, error: &error, retry_after: fail.retry_after };
    let retry_at = match failed
        .decide(&step.retry.as_deref().copied().unwrap_or_default(), || ctx.cell.random())
    {
        RetryDecision::Doubt => {
            warn_of_doubt(ctx, visit);
            return Entry::StepInDoubt { step: visit.clone(), reason: fail.to_string() };
        }
        RetryDecision::After(wait) => {
            tracing::warn!(
                run = %ctx.run_id(), workflow = %ctx.workflow(), step = %visit, attempt, error = ?fail.kind,
                code = fail.code(), ?wait, "an attempt has failed and is tried again"
            );
            Some(ctx.cell.after(wait))
        }
        RetryDecision::Fail => None,
    };
    Entry::StepFailed { step: visit.clone(), attempt, error, retry_at }
}

pub(crate) fn doubt(step: &Step, visit: &Visit, reason: &str) {
    warn_of_doubt(&step.ctx, visit);
    let doubted = Entry::StepInDoubt { step: visit.clone(), reason: reason.to_owned() };
    step.ctx.cell.record_end([doubted]);
    step.ctx.cell.nudge();
}

fn warn_of_doubt(ctx: &Ctx, visit: &Visit) {
    tracing::warn!(
        run = %ctx.run_id(), workflow = %ctx.workflow(), step = %visit,
        "it is unknown whether an effect took place; an operator has to decide"
    );
}

/// Result of a look-up.
#[derive(PartialEq)]
enum LookedUp {
    /// Something, and it is recorded: a result, or a doubt.
    Something,
    /// The effect did not take place.
    Nothing,
}

/// Asks the provider whether a try without a known end had its effect.
async fn ask<T: Serialize>(
    step: &Step,
    visit: &Visit,
    number: u32,
    look_up: &mut Option<LookUp<'_, T>>,
) -> LookedUp {
    let Some(look_up) = look_up else {
        doubt(step, visit, "its end is hidden, and the code no longer says whom to ask");
        return LookedUp::Something;
    };
    let attempt = Attempt::new(&step.ctx, visit.clone(), number);
    let scope = BodyScope { ctx: &step.ctx, span: step_span(visit, number) };
    let answer = contained(scope, step.timeout, async { look_up(attempt).await }).await;
    match answer {
        Ok(Some(value)) => match Payload::of(&value) {
            Ok(value) => finish(step, visit, number, None, Ok(value)),
            Err(unkept) => doubt(step, visit, &format!("{UNKEPT}: {unkept}")),
        },
        Ok(None) => return LookedUp::Nothing,
        Err(_) if sabotage::commits(Bug::UnknownIsAbsent) => return LookedUp::Nothing,
        Err(unknown) => {
            doubt(step, visit, &format!("its end is hidden, and the look-up failed: {unknown}"));
        }
    }
    LookedUp::Something
}
