//! Steps with the class that follows from what a provider can do about a repeated request.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Attempt;
use super::ctx::Doing;
use super::step::Step;
use crate::clock::Time;
use crate::fail::{Fail, Result, fatal};
use crate::profiles::{Profile, Repeats, last_send};
use crate::rules::entry::FailureKind;

/// A step that calls a provider, and has not begun.
#[must_use = "a step begins with `.run(..)`, and is over when that is awaited"]
pub struct Profiled {
    step: Step,
    profile: &'static Profile,
}

impl fmt::Debug for Profiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profiled({:?}, {})", self.step, self.profile.name)
    }
}

impl Profiled {
    pub(super) fn new(step: Step, profile: &'static Profile) -> Self {
        Self { step, profile }
    }

    /// Runs it: the body is called for each try, until there is an outcome. A try whose end is not known is repeated with the same
    /// key as long as the provider remembers it; then, and if there is no key, the step is in doubt.
    ///
    /// The body should use [`Profile::key`] and [`Profile::answered`]: an error of the client is [`Fail::retryable`].
    pub fn run<'a, T, B, Fut>(self, mut body: B) -> Doing<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        B: FnMut(Attempt) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T>> + Send + 'a,
    {
        let Self { step, profile } = self;
        let Repeats::Key { window, .. } = profile.repeats else { return step.at_most_once().run(body) };
        Doing::new(async move {
            let Some(name) = step.plain_name() else {
                return Err(fatal(
                    "a step with a profile has no key of its own; give its pass a scope: `ctx.scope_keyed(..)`",
                ));
            };
            let ctx = step.ctx.clone();
            let first = ctx.first_try(name).await?;
            let until = first.map(|first| first.after(last_send(window)));
            let tries = &Tries { until, most: step.max_attempts(), known: Mutex::default() };
            step.reconcile(async move |attempt: Attempt| tries.look_up(&attempt))
                .run(move |attempt| {
                    let trying = tries.begin(&attempt).map(|()| body(attempt.clone()));
                    async move {
                        match trying {
                            Ok(trying) => tries.ended(&attempt, trying.await),
                            Err(old) => Err(old),
                        }
                    }
                })
                .await
        })
    }
}

/// Tries of a step in this execution.
struct Tries {
    /// When the provider may have forgotten the key; none if the time of the first try is not known.
    until: Option<Time>,
    most: u32,
    known: Mutex<KnownTries>,
}

#[derive(Default)]
struct KnownTries {
    /// Whether the tries before this execution have been considered.
    is_begun: bool,
    /// Whether an earlier try may have taken place.
    may_have_happened: bool,
    /// How the last try has ended.
    end: TryEnd,
}

/// How a try has ended that gave no result.
#[derive(Clone, Copy, Default, PartialEq)]
enum TryEnd {
    /// Another one may follow, under the same key.
    #[default]
    Open,
    /// Without an effect, for certain, as all before it.
    Certain,
    /// No other one follows, and something may have taken place.
    Final,
}

impl Tries {
    fn known(&self) -> MutexGuard<'_, KnownTries> {
        // Nothing is left half done by a panic in here.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_young(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Before a try: an earlier one that may have taken place is repeated only while its key is remembered.
    fn begin(&self, attempt: &Attempt) -> Result<()> {
        let mut known = self.known();
        if attempt.is_cleared() {
            known.may_have_happened = false;
        } else if !known.is_begun {
            known.may_have_happened = attempt.number() > 1;
        }
        (known.is_begun, known.end) = (true, TryEnd::Open);
        match known.may_have_happened && !self.is_young(attempt.now()) {
            true => {
                known.end = TryEnd::Final;
                Err(Fail::uncertain("the key of an earlier try may be forgotten by now"))
            }
            false => Ok(()),
        }
    }

    /// After a try: a failure is one only if nothing has taken place.
    fn ended<T>(&self, attempt: &Attempt, result: Result<T>) -> Result<T> {
        let fail = match result {
            Ok(value) => return Ok(value),
            Err(fail) => fail,
        };
        let mut known = self.known();
        let is_certain = fail.kind() == FailureKind::Fatal || fail.retry_after.is_some();
        let is_last = fail.kind() == FailureKind::Fatal || attempt.number() >= self.most;
        known.end = match is_certain && !known.may_have_happened {
            true => TryEnd::Certain,
            false if is_last => TryEnd::Final,
            false => TryEnd::Open,
        };
        known.may_have_happened |= !is_certain;
        match known.end == TryEnd::Final {
            // Without the pause that it may have asked for: then the look-up is asked, which knows that this was the end.
            true => Err(Fail::uncertain(fail)),
            false => Err(fail),
        }
    }

    /// Answers the look-up of the engine for a try without a known end.
    fn look_up<T>(&self, attempt: &Attempt) -> Result<Option<T>> {
        let mut known = self.known();
        if known.end == TryEnd::Certain {
            return Ok(None);
        }
        // A try that the engine has stopped, such as by a timeout, did not reach `ended`.
        let is_last = known.end == TryEnd::Final || (known.is_begun && attempt.number() >= self.most);
        if !is_last && self.is_young(attempt.now()) {
            (known.is_begun, known.may_have_happened) = (true, true);
            return Ok(None);
        }
        Err(Fail::uncertain("it may have taken place, and no repetition under its key can tell"))
    }
}
