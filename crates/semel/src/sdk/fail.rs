//! What goes wrong in a step or a workflow, and whether it is worth another try.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::state::State;
use crate::error::Source;
use crate::rules::entry::{Failure, FailureKind};
use crate::rules::path::Visit;

/// The result of a workflow and of everything in it.
pub type Result<T, E = Fail> = std::result::Result<T, E>;

/// The error of a step or a workflow. Every error of the standard kind becomes one by `?`, and is then worth another
/// try; [`fatal`] and [`FailExt`] say otherwise.
///
/// ```
/// use semel::{FailExt, Result, fatal};
/// use std::time::Duration;
///
/// fn charge(cents: &str) -> Result<u64> {
///     let cents: u64 = cents.parse().fatal()?; // no try will make a number of it
///     if cents == 0 {
///         return Err(fatal("nothing to charge"));
///     }
///     std::fs::read_to_string("/dev/null").retry_after(Duration::from_secs(5))?;
///     Ok(cents)
/// }
/// assert!(charge("many").unwrap_err().is_fatal());
/// ```
pub struct Fail {
    pub(crate) kind: FailureKind,
    pub(crate) retry_after: Option<Duration>,
    message: String,
    source: Option<Source>,
    /// Where in the run it is recorded. As long as this is held, the failure is on its way to the one who handles it: so a race
    /// knows whether its winner has failed, or has only seen a failure.
    #[expect(dead_code, reason = "it is held, and the race looks whether it is")]
    recorded: Option<Arc<Visit>>,
}

/// An error that no other try will mend.
pub fn fatal(message: impl fmt::Display) -> Fail {
    Fail::new(FailureKind::Fatal, message)
}

impl Fail {
    pub(crate) fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, retry_after: None, message: message.to_string(), source: None, recorded: None }
    }

    /// An error that another try may mend.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Retryable, message)
    }

    /// An error after which nobody knows whether the effect took place.
    pub fn uncertain(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Uncertain, message)
    }

    pub(crate) fn cancelled(reason: &str) -> Self {
        Self::new(FailureKind::Cancelled, format_args!("the run was asked to end: {reason}"))
    }

    /// A recorded failure, said where it was recorded.
    pub(crate) fn recorded(place: impl fmt::Display, failure: &Failure) -> Self {
        Self::new(failure.kind, format_args!("{place}: {}", failure.message))
    }

    /// The same, recorded at a visit of a run.
    pub(crate) fn at(self, state: &mut State, visit: &Visit) -> Self {
        let at = Arc::new(visit.clone());
        state.hears(&at);
        Self { recorded: Some(at), ..self }
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether no other try will mend it.
    pub fn is_fatal(&self) -> bool {
        self.kind == FailureKind::Fatal
    }

    /// Whether the run was asked to end: only clean-up makes sense now ([`Ctx::cleanup`](crate::Ctx::cleanup)).
    pub fn is_cancelled(&self) -> bool {
        self.kind == FailureKind::Cancelled
    }

    /// The error it was made from, if it is at hand: it is not recorded, so a replayed step has none.
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    pub(crate) fn failure(&self) -> Failure {
        Failure { kind: self.kind, message: self.message.clone() }
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.kind)
    }
}

/// A `Fail` is no standard error itself: only so can every standard error become one.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Fail {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        let source: Option<Source> = Some(Box::new(error));
        Self { kind: FailureKind::Retryable, retry_after: None, message, source, recorded: None }
    }
}

/// Says of an error what it means for the next try.
pub trait FailExt<T> {
    /// No other try will mend it.
    fn fatal(self) -> Result<T>;
    /// Try again, but not before this much time has passed. It also says that the effect did not take place.
    fn retry_after(self, pause: Duration) -> Result<T>;
    /// Nobody knows whether the effect took place.
    fn uncertain(self) -> Result<T>;
}

impl<T, E: Into<Fail>> FailExt<T> for std::result::Result<T, E> {
    fn fatal(self) -> Result<T> {
        self.map_err(|error| Fail { kind: FailureKind::Fatal, retry_after: None, ..error.into() })
    }

    fn retry_after(self, pause: Duration) -> Result<T> {
        self.map_err(|error| Fail { kind: FailureKind::Retryable, retry_after: Some(pause), ..error.into() })
    }

    fn uncertain(self) -> Result<T> {
        self.map_err(|error| Fail { kind: FailureKind::Uncertain, retry_after: None, ..error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_causes_and_is_worth_another_try() {
        let error = crate::Error::Unavailable("disk".into());
        let fail = Fail::from(error);
        assert_eq!(fail.kind(), FailureKind::Retryable);
        assert_eq!(fail.to_string(), "the store is not available: disk: disk");
        assert!(fail.source().is_some());
    }

    #[test]
    fn the_last_word_on_an_error_counts() {
        let pause = Duration::from_secs(1);
        let late = || Err::<(), _>(Fail::retryable("later")).retry_after(pause);
        assert_eq!(late().map_err(|fail| fail.retry_after), Err(Some(pause)));
        for said in [late().fatal(), late().uncertain()] {
            assert_eq!(
                said.map_err(|fail| fail.retry_after),
                Err(None),
                "a pause says that nothing took place"
            );
        }
    }
}
