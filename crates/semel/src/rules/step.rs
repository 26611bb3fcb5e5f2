//! The states of one step: attempts, outcome, doubt.

use std::time::Duration;

use super::entry::{Class, Failure, FailureKind, Resolution};
use super::json::Payload;
use super::retry::{Retry, RetryDecision};
use crate::clock::Time;

/// Recorded state of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepState {
    /// An attempt has begun and its end is not recorded.
    Started {
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Decides what to do if its end stays unknown.
        class: Class,
    },
    /// An attempt failed; the next may begin at the given time.
    Retrying {
        /// Number of the attempt that failed.
        attempt: u32,
        /// Error of that attempt.
        error: Failure,
        /// Time at which the next attempt may begin.
        at: Time,
    },
    /// The step completed with this result.
    Completed(Payload),
    /// The step has failed: there is no next attempt.
    Failed(Failure),
    /// The step was not needed.
    Skipped,
    /// It is not known whether the effect of this attempt took place.
    InDoubt {
        /// Number of the attempt.
        attempt: u32,
        /// Guarantee about the effect.
        class: Class,
    },
    /// An operator gave up on the doubt: the step has failed, but its effect may have taken place.
    GivenUp {
        /// Number of the attempt.
        attempt: u32,
        /// Guarantee about the effect.
        class: Class,
        /// Error that the workflow gets.
        error: Failure,
    },
    /// An operator said that the effect of this attempt did not take place.
    Cleared {
        /// Number of the attempt.
        attempt: u32,
    },
}

/// Decision about a step whose attempt has no recorded end, by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCrash {
    /// Run the body again under the same effect key.
    RunAgain,
    /// Ask the provider (reconcile) or the user's database (tx).
    Ask,
    /// Record the doubt and pause the run.
    Doubt,
}

/// The rule for an attempt whose end is unknown, by class.
pub fn after_crash(class: Class) -> AfterCrash {
    match class {
        Class::Keyed => AfterCrash::RunAgain,
        Class::Reconcile | Class::Tx => AfterCrash::Ask,
        Class::AtMostOnce => AfterCrash::Doubt,
    }
}

/// Decision of the ledger about what a step does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextMove {
    /// Begin this attempt, at this time if there is one.
    Attempt(u32, Option<Time>),
    /// Find out whether this attempt had its effect. It has begun and has no recorded end: see [`after_crash`].
    FindOut(u32, Class),
    /// Nothing: the step has an outcome, or waits for an operator.
    Nothing,
}

/// An attempt that has failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// Class of the step, which decides what happens after a crash.
    pub class: Class,
    /// Number of the attempt, from 1.
    pub number: u32,
    /// Error with which the attempt failed.
    pub error: &'a Failure,
    /// Pause that the body asks for. By asking it also says that the effect did not take place.
    pub retry_after: Option<Duration>,
}

impl FailedAttempt<'_> {
    /// Decides what follows. `random` draws a number from 0 up to 1.
    pub fn decide(&self, retry: &Retry, random: impl FnOnce() -> f64) -> RetryDecision {
        // Only `fatal` and `retry_after` say that the effect did not take place. A cancel too may have come after it.
        let certain = self.error.kind == FailureKind::Fatal || self.retry_after.is_some();
        if self.class == Class::AtMostOnce && !certain {
            return RetryDecision::Doubt;
        }
        match (retry.next(self.number, self.error, random()), self.retry_after) {
            (RetryDecision::After(_), Some(asked)) => RetryDecision::After(asked),
            (decision, _) => decision,
        }
    }
}

/// Whether a look-up has to say if an attempt that has failed had its effect. The failure may have come after the effect, also
/// if it is fatal; only a pause that the body asks for says that the effect did not take place.
pub fn is_looked_up(class: Class, retry_after: Option<Duration>) -> bool {
    class == Class::Reconcile && retry_after.is_none()
}

/// The kind of a failure after a look-up has said that the effect did not take place: another attempt, unless none makes
/// sense.
pub fn kind_if_absent(kind: FailureKind) -> FailureKind {
    match kind {
        FailureKind::Fatal | FailureKind::Cancelled => kind,
        _ => FailureKind::Retryable,
    }
}

impl StepState {
    /// What the code does next about a step in this state. None means that the step has not begun.
    pub fn next_move(step: Option<&Self>) -> NextMove {
        match step {
            None => NextMove::Attempt(1, None),
            Some(Self::Retrying { attempt, at, .. }) => NextMove::Attempt(attempt + 1, Some(*at)),
            Some(Self::Cleared { attempt }) => NextMove::Attempt(attempt + 1, None),
            Some(Self::Started { attempt, class }) => NextMove::FindOut(*attempt, *class),
            Some(_) => NextMove::Nothing,
        }
    }

    /// Whether it has an outcome; a settled step never runs again.
    pub fn is_settled(&self) -> bool {
        self.failure().is_some() || matches!(self, Self::Completed(_) | Self::Skipped)
    }

    /// Its error, if there is no next attempt.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(error) | Self::GivenUp { error, .. } => Some(error),
            _ => None,
        }
    }

    /// The attempt that may begin now, if any may. After an at-most-once attempt without a recorded end there is none: a
    /// node that takes the run over records the doubt instead.
    pub fn next_attempt(step: Option<&Self>) -> Option<u32> {
        match step {
            None => Some(1),
            Some(Self::Started { class: Class::AtMostOnce, .. }) => None,
            Some(
                Self::Started { attempt, .. } | Self::Retrying { attempt, .. } | Self::Cleared { attempt },
            ) => Some(attempt + 1),
            Some(_) => None,
        }
    }

    /// The attempt whose end may be recorded now, if any may.
    pub fn open_attempt(&self) -> Option<u32> {
        match self {
            Self::Started { attempt, .. } => Some(*attempt),
            _ => None,
        }
    }

    /// The step after a resolution; none if it is not in doubt.
    pub fn resolved(&self, resolution: &Resolution) -> Option<Self> {
        let Self::InDoubt { attempt, class } = *self else { return None };
        Some(match resolution {
            Resolution::Happened(value) => Self::Completed(value.clone()),
            Resolution::DidNotHappen => Self::Cleared { attempt },
            Resolution::GiveUp(error) => Self::GivenUp { attempt, class, error: error.clone() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_keyed_step_runs_again_by_itself() {
        assert_eq!(after_crash(Class::Keyed), AfterCrash::RunAgain);
        assert_eq!(after_crash(Class::AtMostOnce), AfterCrash::Doubt);
        assert_eq!(after_crash(Class::Reconcile), AfterCrash::Ask);
        assert_eq!(after_crash(Class::Tx), AfterCrash::Ask);
    }

    #[test]
    fn no_attempt_follows_an_outcome_or_a_doubt() {
        let failure = Failure::new(super::super::entry::FailureKind::Fatal, "no");
        for step in [
            StepState::Completed(Payload::null()),
            StepState::Failed(failure.clone()),
            StepState::Skipped,
            StepState::InDoubt { attempt: 1, class: Class::Keyed },
            StepState::GivenUp { attempt: 1, class: Class::AtMostOnce, error: failure },
            StepState::Started { attempt: 1, class: Class::AtMostOnce },
        ] {
            assert_eq!(StepState::next_attempt(Some(&step)), None, "{step:?}");
        }
        assert_eq!(StepState::next_attempt(Some(&StepState::Cleared { attempt: 1 })), Some(2));
        for class in [Class::Keyed, Class::Reconcile, Class::Tx] {
            assert_eq!(
                StepState::next_attempt(Some(&StepState::Started { attempt: 1, class })),
                Some(2),
                "{class:?}"
            );
        }
    }

    fn failed(class: Class, kind: FailureKind, retry_after: Option<Duration>) -> RetryDecision {
        let error = Failure::new(kind, "no");
        FailedAttempt { class, number: 1, error: &error, retry_after }.decide(&Retry::default(), || 0.0)
    }

    #[test]
    fn the_next_move_follows_from_the_state() {
        let failure = Failure::new(FailureKind::Retryable, "no");
        let class = Class::Reconcile;
        for (step, next) in [
            (None, NextMove::Attempt(1, None)),
            (Some(StepState::Started { attempt: 2, class }), NextMove::FindOut(2, class)),
            (
                Some(StepState::Retrying { attempt: 2, error: failure.clone(), at: Time(9) }),
                NextMove::Attempt(3, Some(Time(9))),
            ),
            (Some(StepState::Cleared { attempt: 2 }), NextMove::Attempt(3, None)),
            (Some(StepState::InDoubt { attempt: 2, class }), NextMove::Nothing),
            (Some(StepState::Completed(Payload::null())), NextMove::Nothing),
            (Some(StepState::Failed(failure.clone())), NextMove::Nothing),
            (Some(StepState::GivenUp { attempt: 2, class, error: failure }), NextMove::Nothing),
            (Some(StepState::Skipped), NextMove::Nothing),
        ] {
            assert_eq!(StepState::next_move(step.as_ref()), next, "{step:?}");
        }
    }

    #[test]
    fn an_at_most_once_attempt_that_fails_without_certainty_is_in_doubt() {
        let pause = Some(Duration::from_secs(7));
        for (kind, retry_after, expected) in [
            (FailureKind::Retryable, None, RetryDecision::Doubt),
            (FailureKind::Panic, None, RetryDecision::Doubt),
            (FailureKind::Timeout, None, RetryDecision::Doubt),
            (FailureKind::Uncertain, None, RetryDecision::Doubt),
            (FailureKind::Cancelled, None, RetryDecision::Doubt),
            (FailureKind::Fatal, None, RetryDecision::Fail),
            (FailureKind::Retryable, pause, RetryDecision::After(Duration::from_secs(7))),
        ] {
            assert_eq!(failed(Class::AtMostOnce, kind, retry_after), expected, "{kind:?} {retry_after:?}");
        }
    }

    #[test]
    fn other_attempts_follow_the_policy_and_the_pause_that_is_asked_for() {
        for class in [Class::Keyed, Class::Reconcile, Class::Tx] {
            let after = |seconds| RetryDecision::After(Duration::from_secs(seconds));
            assert_eq!(failed(class, FailureKind::Retryable, None), after(1), "{class:?}");
            assert_eq!(failed(class, FailureKind::Retryable, Some(Duration::from_secs(7))), after(7));
            assert_eq!(failed(class, FailureKind::Fatal, None), RetryDecision::Fail, "{class:?}");
            assert_eq!(failed(class, FailureKind::Cancelled, None), RetryDecision::Fail, "{class:?}");
            assert_eq!(failed(class, FailureKind::Uncertain, None), RetryDecision::Doubt, "{class:?}");
        }
    }

    #[test]
    fn only_a_reconciled_attempt_without_certainty_is_looked_up() {
        for class in [Class::Keyed, Class::AtMostOnce, Class::Reconcile, Class::Tx] {
            assert_eq!(is_looked_up(class, None), class == Class::Reconcile, "{class:?}");
            assert!(!is_looked_up(class, Some(Duration::ZERO)), "{class:?}");
        }
    }

    #[test]
    fn an_absent_effect_is_tried_again_unless_the_error_was_final() {
        for kind in [FailureKind::Fatal, FailureKind::Cancelled] {
            assert_eq!(kind_if_absent(kind), kind);
        }
        for kind in [FailureKind::Retryable, FailureKind::Panic, FailureKind::Timeout, FailureKind::Uncertain]
        {
            assert_eq!(kind_if_absent(kind), FailureKind::Retryable);
        }
    }
}
