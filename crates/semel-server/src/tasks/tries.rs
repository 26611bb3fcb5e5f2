//! The tries of a step that has an effect outside, by what the other side can do about a repetition: when another try is safe, when
//! the other side has to be asked before it, and when the step is in doubt. What is sent, and how the other side is asked, is known
//! by the task.
//!
//! | way | class of the step | when an answer is lost |
//! |---|---|---|
//! | read | keyed | again |
//! | key for ever | keyed | again, same key |
//! | key with a window | reconciled | again with the same key while the first try is young; then the look-up if there is one, else doubt |
//! | look-up | reconciled | the look-up is asked; absent counts only when it has had time to settle |
//! | nothing | at most once | doubt |
//!
//! A step fails only if its effect certainly did not take place, in this try and in all earlier ones: what may have happened is never
//! treated as if it had not, because its `undo` would be left out. When the last attempt of a write leaves that open, it is in doubt.
//! So is a write that is refused after a lost answer, unless the refusal also speaks for the try before ([`TryEnd::Refused`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel::clock::Time;
use semel::rules::entry::{Failure, FailureKind};
use semel::rules::json::Payload;
use semel::rules::retry::RetryDecision;
use semel::sabotage::{self, Bug};
use semel::sdk::{FailExt as _, Step};
use semel::{Attempt, Fail, Result, Retry};

use crate::connections::HttpAnswer;

/// What is done about repetitions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// There is no effect.
    Read,
    /// The other side recognises the key for ever.
    Key,
    /// The other side recognises the key for a time. The key is sent again only within that time after the first try.
    InWindow(Duration),
    /// The other side can be asked.
    LookUp,
    /// The effect is never tried twice.
    Once,
    /// The connection is missing, so it is not known yet.
    Missing,
}

/// What became of one try. `T` is what the other side has answered.
#[derive(Debug)]
pub(super) enum TryEnd<T = HttpAnswer> {
    /// The effect took place, with this result.
    Done(T),
    /// It certainly did not take place, and no other try mends that. `is_about_effect` is whether a key would have been looked up
    /// before this answer, so that it also speaks for earlier tries.
    Refused { fail: Fail, is_about_effect: bool },
    /// This try certainly did nothing, and another one may. `is_at_work` is whether an earlier one still is.
    NotNow { fail: Fail, pause: Option<Duration>, is_at_work: bool },
    /// It is not known whether it took place. `is_final` is whether the same answer would be given to every repetition.
    Unknown { fail: Fail, is_final: bool },
}

/// A task that sends something.
pub(super) trait Sender: Sync {
    /// Whether the other side is asked before every try that is old, also if no earlier try is known.
    const ASKS_IF_OLD: bool = false;

    /// The tries of its step.
    fn tries(&self) -> &Tries;

    /// Makes one try.
    fn attempt(&self, attempt: Attempt) -> impl Future<Output = Result<Payload>> + Send;

    /// Asks the other side what became of the tries so far: what is found, none if certainly none of them took place, or an error
    /// if it is not known.
    fn search(&self, attempt: &Attempt) -> impl Future<Output = Result<Option<Payload>>> + Send;
}

/// Runs the step as its way says.
pub(super) async fn run<S: Sender>(sender: &S, step: Step) -> Result<Payload> {
    match sender.tries().way {
        Way::Read | Way::Key => step.run(|attempt| sender.attempt(attempt)).await,
        Way::Once => step.at_most_once().run(|attempt| sender.attempt(attempt)).await,
        Way::InWindow(_) | Way::LookUp | Way::Missing => {
            step.reconcile(|attempt| look_up(sender, attempt)).run(|attempt| sender.attempt(attempt)).await
        }
    }
}

/// What the engine asks about a try without a known end: found, absent (run again), or an error (doubt).
async fn look_up<S: Sender>(sender: &S, attempt: Attempt) -> Result<Option<Payload>> {
    let tries = sender.tries();
    if tries.state().is_certain {
        return Ok(None);
    }
    if matches!(tries.way, Way::InWindow(_)) && !tries.is_final() && !tries.is_old(attempt.now()) {
        let mut state = tries.state();
        (state.is_known, state.may_have_happened) = (true, true);
        return Ok(None);
    }
    let found = sender.search(&attempt).await?;
    if found.is_none() {
        let mut state = tries.state();
        (state.is_known, state.may_have_happened, state.is_final) = (true, false, false);
    }
    Ok(found)
}

/// The tries of a step in this execution.
#[derive(Debug)]
pub(super) struct Tries {
    way: Way,
    retry: Retry,
    /// Time before the first try, if keys are forgotten; none if it is not known.
    first: Option<Time>,
    state: Mutex<TriesState>,
}

/// What this execution knows about the tries so far.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the facts do not exclude each other")]
struct TriesState {
    /// Whether the tries before this execution have been considered.
    is_known: bool,
    /// Whether an earlier try may have taken place.
    may_have_happened: bool,
    /// Whether the last try has ended without an effect, for certain.
    is_certain: bool,
    /// Whether another try under the same key would tell nothing.
    is_final: bool,
    /// End of the last try.
    last: Option<Time>,
}

impl Tries {
    pub(super) fn new(way: Way, retry: Option<Retry>, first: Option<Time>) -> Self {
        Self { way, retry: retry.unwrap_or_default(), first, state: Mutex::default() }
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Time before the first try, if it was recorded.
    #[cfg(feature = "mail")]
    pub(super) fn first(&self) -> Option<Time> {
        self.first
    }

    fn state(&self) -> MutexGuard<'_, TriesState> {
        // Nothing is left half done by a panic in here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another try under the same key would tell nothing, or there is none.
    pub(super) fn is_final(&self) -> bool {
        self.state().is_final
    }

    /// What is known before a try.
    pub(super) fn begin(&self, attempt: &Attempt) {
        let mut state = self.state();
        if attempt.is_cleared() {
            state.may_have_happened = false;
        } else if !state.is_known {
            // Tries of an earlier execution. Those of a look-up or at most once are followed by another only if they did nothing.
            let repeats = matches!(self.way, Way::Key | Way::InWindow(_) | Way::Missing);
            state.may_have_happened = repeats && attempt.number() > 1;
        }
        state.is_known = true;
        (state.is_certain, state.is_final) = (false, false);
    }

    /// Notes the end of a try.
    pub(super) fn ended(&self, now: Time) {
        self.state().last = Some(now);
    }

    /// What it means that nothing can be sent in this try. If an earlier one may have taken place, something has changed since, such as
    /// the profile: that says nothing about the earlier one.
    pub(super) fn sent_nothing(&self, fail: Fail) -> Fail {
        let may_have_happened = self.state().may_have_happened;
        if may_have_happened {
            return self.unknown(fail, true);
        }
        self.state().is_certain = true;
        fail
    }

    /// Whether the other side may have forgotten the key by now.
    pub(super) fn is_old(&self, now: Time) -> bool {
        match self.way {
            Way::InWindow(_) if sabotage::commits(Bug::WindowIgnored) => false,
            Way::InWindow(young) => self.first.is_none_or(|first| now >= first.after(young)),
            _ => false,
        }
    }

    /// Before a key is sent that may be forgotten: only a look-up permits another try after one that may have taken place.
    pub(super) async fn before_resend<S: Sender>(
        &self,
        attempt: &Attempt,
        sender: &S,
    ) -> Result<Option<Payload>> {
        let may_have_happened = self.state().may_have_happened;
        let asks = may_have_happened || (S::ASKS_IF_OLD && !attempt.is_cleared());
        if !asks || !self.is_old(attempt.now()) {
            return Ok(None);
        }
        match sender.search(attempt).await {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => {
                self.state().may_have_happened = false;
                Ok(None)
            }
            Err(unknown) => {
                self.state().is_final = true;
                Err(uncertain(unknown))
            }
        }
    }

    /// Asks until something is found. It is absent only if it is still not found when the other side has had so much time to
    /// settle since the last try.
    pub(super) async fn settled<T, F, Fut>(
        &self,
        attempt: &Attempt,
        settle: Duration,
        ask: F,
    ) -> Result<Option<T>>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<Option<T>>>,
    {
        // After a crash the end of the last try is not known: it may have been a moment ago.
        let last = self.state().last.unwrap_or_else(|| attempt.now());
        let settled = last.after(settle);
        loop {
            let asked_at = attempt.now();
            if let Some(found) = ask().await? {
                return Ok(Some(found));
            }
            if asked_at >= settled {
                return Ok(None);
            }
            attempt.clock().until(settled).await;
        }
    }

    /// What a write's end means for the step. `done` makes the recorded value.
    pub(super) fn end<T>(
        &self,
        attempt: &Attempt,
        tried: TryEnd<T>,
        done: impl FnOnce(T) -> Result<Payload>,
    ) -> Result<Payload> {
        match tried {
            TryEnd::Done(answer) => done(answer),
            TryEnd::Refused { fail, is_about_effect } => {
                if self.state().may_have_happened && !is_about_effect {
                    return Err(self.unknown(fail, true));
                }
                self.state().is_certain = true;
                Err(fail)
            }
            TryEnd::NotNow { fail, pause, is_at_work } => {
                self.state().may_have_happened |= is_at_work;
                self.not_now(attempt, fail, pause)
            }
            TryEnd::Unknown { fail, is_final } => {
                let is_last = is_final || self.is_last(attempt);
                Err(self.unknown(fail, is_last))
            }
        }
    }

    /// This try did nothing. If there is no other one, the step has failed, unless an earlier try may have taken place.
    pub(super) fn not_now(&self, attempt: &Attempt, fail: Fail, pause: Option<Duration>) -> Result<Payload> {
        if self.is_last(attempt) && self.state().may_have_happened {
            return Err(self.unknown(fail, true));
        }
        self.state().is_certain = true;
        Err(fail).retry_after(pause_before_next(self.retry, attempt, pause))
    }

    fn is_last(&self, attempt: &Attempt) -> bool {
        attempt.number() >= self.retry.max_attempts
    }

    /// It may have taken place. A key is sent again as long as there is another try.
    fn unknown(&self, fail: Fail, is_final: bool) -> Fail {
        let mut state = self.state();
        state.may_have_happened = true;
        state.is_final = is_final;
        match self.way {
            Way::Key if !is_final => fail,
            Way::Read => fail,
            Way::Key | Way::Once => uncertain(fail),
            // The engine asks the look-up, whatever the failure.
            Way::InWindow(_) | Way::LookUp | Way::Missing => fail,
        }
    }
}

/// The pause before the next try of a call that certainly did nothing: the engine has to be told one. What the other side asks for is
/// obeyed up to the longest pause of the step.
pub(super) fn pause_before_next(retry: Retry, attempt: &Attempt, asked: Option<Duration>) -> Duration {
    let own = match retry.next(attempt.number(), &Failure::new(FailureKind::Retryable, ""), 0.0) {
        RetryDecision::After(pause) => pause,
        RetryDecision::Fail | RetryDecision::Doubt => retry.initial,
    };
    asked.unwrap_or(own).min(retry.max_delay)
}

/// The same failure, after which it is unknown whether the effect took place.
pub(super) fn uncertain(fail: Fail) -> Fail {
    match Err::<(), _>(fail).uncertain() {
        Err(fail) => fail,
        Ok(()) => unreachable!("an error stays one"),
    }
}
