//! Retry: whether another attempt is made, and when.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::entry::{Failure, FailureKind};
use super::millis;
use crate::sabotage::{self, Bug};

/// Retry policy of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Retry {
    /// Maximum number of attempts, the first included.
    pub max_attempts: u32,
    /// Pause after the first attempt.
    #[serde(rename = "initialMs", with = "millis")]
    pub initial: Duration,
    /// Factor by which each pause is longer than the one before.
    pub factor: f64,
    /// Maximum length of a pause.
    #[serde(rename = "maxDelayMs", with = "millis")]
    pub max_delay: Duration,
    /// Share of a pause, from 0 to 1, up to which it is shortened at random, so that many runs do not retry at the
    /// same time.
    pub jitter: f64,
}

impl Default for Retry {
    /// Three attempts, pauses from one second doubling up to a minute, half of it jitter.
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial: Duration::from_secs(1),
            factor: 2.0,
            max_delay: Duration::from_mins(1),
            jitter: 0.5,
        }
    }
}

/// Decision about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Another attempt after this pause.
    After(Duration),
    /// There is no next attempt: the step has failed.
    Fail,
    /// The effect may have taken place: doubt, not another attempt.
    Doubt,
}

impl Retry {
    /// The default: three attempts with growing pauses.
    pub fn exponential() -> Self {
        Self::default()
    }

    /// A single attempt, without retries.
    pub fn none() -> Self {
        Self { max_attempts: 1, ..Self::default() }
    }

    /// The same pause between all attempts.
    pub fn fixed(pause: Duration) -> Self {
        Self { initial: pause, factor: 1.0, max_delay: pause, jitter: 0.0, ..Self::default() }
    }

    /// Sets the maximum number of attempts, the first included.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts, ..self }
    }

    /// Sets the pause after the first attempt.
    #[must_use]
    pub fn initial(self, initial: Duration) -> Self {
        Self { initial, ..self }
    }

    /// Decides what follows attempt number `attempt`. `random` is from 0 up to 1.
    pub fn next(&self, attempt: u32, failure: &Failure, random: f64) -> RetryDecision {
        match failure.kind {
            FailureKind::Fatal | FailureKind::Cancelled => RetryDecision::Fail,
            FailureKind::Uncertain => RetryDecision::Doubt,
            _ if attempt >= self.max_attempts || sabotage::commits(Bug::FirstTryIsTheLast) => {
                RetryDecision::Fail
            }
            FailureKind::Retryable | FailureKind::Panic | FailureKind::Timeout => {
                RetryDecision::After(self.pause(attempt, random))
            }
        }
    }

    fn pause(&self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let full = self.initial.as_secs_f64() * self.factor.powi(exponent);
        let full = full.min(self.max_delay.as_secs_f64());
        Duration::try_from_secs_f64(full * (1.0 - self.jitter * random)).unwrap_or(self.max_delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind) -> Failure {
        Failure::new(kind, "")
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let retry = Retry { max_attempts: u32::MAX, ..Retry::default() };
        let pause = |attempt, random| match retry.next(attempt, &failure(FailureKind::Retryable), random) {
            RetryDecision::After(pause) => pause.as_millis(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [1, 2, 3, 7, 1000, u32::MAX - 1].map(|n| pause(n, 0.0)),
            [1000, 2000, 4000, 60_000, 60_000, 60_000]
        );
        assert_eq!(pause(1, 1.0), 500);
    }

    #[test]
    fn what_travels_is_milliseconds_and_what_is_not_said_is_the_default() {
        let retry = Retry { max_attempts: 7, ..Retry::fixed(Duration::from_millis(250)) };
        let text = r#"{"maxAttempts":7,"initialMs":250,"factor":1.0,"maxDelayMs":250,"jitter":0.0}"#;
        assert_eq!(serde_json::to_string(&retry).unwrap(), text);
        assert_eq!(serde_json::from_str::<Retry>(text).unwrap(), retry);
        let few: Retry = serde_json::from_str(r#"{"maxAttempts":7}"#).unwrap();
        assert_eq!(few, Retry { max_attempts: 7, ..Retry::default() });
    }

    #[test]
    fn the_kind_decides_before_the_count() {
        let retry = Retry::default();
        for (attempt, kind, next) in [
            (1, FailureKind::Fatal, RetryDecision::Fail),
            (1, FailureKind::Uncertain, RetryDecision::Doubt),
            (3, FailureKind::Uncertain, RetryDecision::Doubt),
            (3, FailureKind::Retryable, RetryDecision::Fail),
            (2, FailureKind::Panic, RetryDecision::After(Duration::from_secs(2))),
            (2, FailureKind::Timeout, RetryDecision::After(Duration::from_secs(2))),
        ] {
            assert_eq!(retry.next(attempt, &failure(kind), 0.0), next, "{attempt} {kind:?}");
        }
    }
}
