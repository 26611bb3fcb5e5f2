//! One step's life: attempts, outcome, doubt.

use super::entry::{Class, Failure, Resolution};
use super::json::Payload;
use crate::clock::Time;

/// Where a step stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An attempt has begun and its end is not recorded.
    Started {
        /// Which attempt.
        attempt: u32,
        /// What to do if its end stays hidden.
        class: Class,
    },
    /// An attempt failed; the next may begin at the given time.
    Retrying {
        /// The attempt that failed.
        attempt: u32,
        /// Why.
        error: Failure,
        /// When the next may begin.
        at: Time,
    },
    /// Has its result.
    Completed(Payload),
    /// Has failed for good.
    Failed(Failure),
    /// Was not needed.
    Skipped,
    /// Nobody knows whether the effect of this attempt took place.
    InDoubt {
        /// Which attempt.
        attempt: u32,
        /// What to do if its end stays hidden.
        class: Class,
    },
    /// Nobody knew, and somebody gave up: it has failed, but its effect may have taken place.
    GivenUp {
        /// Which attempt.
        attempt: u32,
        /// What to do if its end stays hidden.
        class: Class,
        /// What the workflow is told.
        error: Failure,
    },
    /// A person said that the effect of this attempt did not take place.
    Cleared {
        /// Which attempt.
        attempt: u32,
    },
}

/// What a new owner does about a step whose attempt has no recorded end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCrash {
    /// Run the body again under the same effect key.
    RunAgain,
    /// Ask: the provider (reconcile) or the user's database (tx).
    Ask,
    /// Record the doubt and pause.
    Doubt,
}

/// The rule for a hidden end, by class.
pub fn after_crash(class: Class) -> AfterCrash {
    match class {
        Class::Keyed => AfterCrash::RunAgain,
        Class::Reconcile | Class::Tx => AfterCrash::Ask,
        Class::AtMostOnce => AfterCrash::Doubt,
    }
}

impl Step {
    /// Whether it has an outcome; a settled step never runs again.
    pub fn is_settled(&self) -> bool {
        self.failure().is_some() || matches!(self, Self::Completed(_) | Self::Skipped)
    }

    /// Why it has failed for good, if it has.
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

    /// What a resolution makes of a step in doubt; nothing if it is not in doubt.
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
        let failure = Failure { kind: super::super::entry::FailureKind::Fatal, message: "no".to_owned() };
        for step in [
            Step::Completed(Payload::null()),
            Step::Failed(failure.clone()),
            Step::Skipped,
            Step::InDoubt { attempt: 1, class: Class::Keyed },
            Step::GivenUp { attempt: 1, class: Class::AtMostOnce, error: failure },
            Step::Started { attempt: 1, class: Class::AtMostOnce },
        ] {
            assert_eq!(Step::next_attempt(Some(&step)), None, "{step:?}");
        }
        assert_eq!(Step::next_attempt(Some(&Step::Cleared { attempt: 1 })), Some(2));
        for class in [Class::Keyed, Class::Reconcile, Class::Tx] {
            assert_eq!(Step::next_attempt(Some(&Step::Started { attempt: 1, class })), Some(2), "{class:?}");
        }
    }
}
