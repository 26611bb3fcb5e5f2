//! What goes wrong in a step or a workflow, and whether it is worth another try.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Source};
use crate::rules::entry::{Failure, FailureKind};
use crate::rules::json::Payload;
use crate::rules::leave::ASKED_TO_END;
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
///
/// `anyhow::Error`, like `Box<dyn Error>`, is no standard error itself, so `?` does not convert it. Say what it means for
/// the next try; the format `{:#}` of `anyhow` includes the causes:
///
/// ```
/// # use semel::{Ctx, Fail, Result};
/// # async fn send(_letter: &str) -> anyhow::Result<u32> { Ok(7) }
/// # async fn workflow(ctx: Ctx, letter: String) -> Result<u32> {
/// ctx.step("send").run(async |_| send(&letter).await.map_err(Fail::retryable)).await?;
/// ctx.step("send again").run(async |_| send(&letter).await.map_err(|e| Fail::retryable(format!("{e:#}")))).await
/// # }
/// ```
pub struct Fail {
    pub(crate) kind: FailureKind,
    pub(crate) retry_after: Option<Duration>,
    message: String,
    detail: Option<Box<Detail>>,
    source: Option<Source>,
    /// Where in the run it is recorded. While this is held, the failure has not reached the code that handles it: so a race
    /// knows whether its winner has failed, or has only seen a failure.
    #[expect(dead_code, reason = "it is held, and the race looks whether it is")]
    recorded: Option<Arc<Visit>>,
}

/// What a program can read of an error, besides its kind. Boxed, because few errors have it.
#[derive(Clone, Default)]
struct Detail {
    code: Option<String>,
    data: Option<Payload>,
}

/// An error that no other try will mend.
pub fn fatal(message: impl fmt::Display) -> Fail {
    Fail::new(FailureKind::Fatal, message)
}

impl Fail {
    pub(crate) fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            retry_after: None,
            message: message.to_string(),
            detail: None,
            source: None,
            recorded: None,
        }
    }

    /// The same failure, of another kind.
    pub(crate) fn of_kind(self, kind: FailureKind) -> Self {
        Self { kind, ..self }
    }

    /// An error that another try may mend.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Retryable, message)
    }

    /// An error after which it is unknown whether the effect took place.
    pub fn uncertain(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Uncertain, message)
    }

    pub(crate) fn cancelled(reason: &str) -> Self {
        Self::new(FailureKind::Cancelled, format_args!("{ASKED_TO_END}{reason}"))
    }

    /// A recorded failure, said where it was recorded.
    pub(crate) fn recorded(place: impl fmt::Display, failure: &Failure) -> Self {
        let Failure { kind, message, code, data } = failure;
        let detail = (code.is_some() || data.is_some())
            .then(|| Box::new(Detail { code: code.clone(), data: data.clone() }));
        Self { detail, ..Self::new(*kind, format_args!("{place}: {message}")) }
    }

    /// The same, recorded at a visit of a run, which knows how long this is held.
    pub(crate) fn at(self, visit: Arc<Visit>) -> Self {
        Self { recorded: Some(visit), ..self }
    }

    /// The failure of code that panicked; `what` names the code.
    pub(crate) fn panicked(what: &str, panic: &(dyn Any + Send)) -> Self {
        let text = match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "without a message",
        };
        Self::new(FailureKind::Panic, format_args!("{what} panicked: {text}"))
    }

    /// Adds a code for programs to decide by, such as `CARD_DECLINED`. It is recorded with the failure, and is there when
    /// a replay gives the failure again.
    ///
    /// ```
    /// # use semel::fatal;
    /// let declined = fatal("the card was declined").with_code("CARD_DECLINED");
    /// assert_eq!(declined.code(), Some("CARD_DECLINED"));
    /// ```
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.detail.get_or_insert_default().code = Some(code.into());
        self
    }

    /// Adds to the message. A run that was asked to end, and whose workflow returns that failure, is cancelled with the reason of the
    /// request and what was added: for instance, what could not be cleaned up.
    ///
    /// ```
    /// # use semel::fatal;
    /// let failed = fatal("the card was declined").with_more("; the parcel is not stopped");
    /// assert_eq!(failed.to_string(), "the card was declined; the parcel is not stopped");
    /// ```
    #[must_use]
    pub fn with_more(mut self, more: impl fmt::Display) -> Self {
        use fmt::Write as _;
        write!(self.message, "{more}").expect("a string can be written to");
        self
    }

    /// Adds details for programs, as JSON. They are recorded with the failure. Details that are no JSON, or too large,
    /// are left out, and the message says so.
    #[must_use]
    pub fn with_data(mut self, data: &impl serde::Serialize) -> Self {
        match Payload::of(data) {
            Ok(data) => self.detail.get_or_insert_default().data = Some(data),
            Err(error) => self.message = format!("{} (its data cannot be recorded: {error})", self.message),
        }
        self
    }

    /// Code of the error; none if it was given none.
    pub fn code(&self) -> Option<&str> {
        self.detail.as_ref()?.code.as_deref()
    }

    /// Details of the error; none if it was given none.
    pub fn data(&self) -> Option<&Payload> {
        self.detail.as_ref()?.data.as_ref()
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

    /// The same failure, of a call to a user's database that belongs to no run.
    pub(crate) fn of_database(self, what: impl Into<String>) -> Error {
        let source = self.source.unwrap_or_else(|| self.message.into());
        Error::Database { what: what.into(), source }
    }

    pub(crate) fn failure(&self) -> Failure {
        let Detail { code, data } = self.detail.as_deref().cloned().unwrap_or_default();
        Failure { kind: self.kind, message: self.message.clone(), code, data }
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
        Self {
            kind: FailureKind::Retryable,
            retry_after: None,
            message,
            detail: None,
            source,
            recorded: None,
        }
    }
}

/// Says of an error what it means for the next try.
pub trait FailExt<T> {
    /// No other try will mend it.
    fn fatal(self) -> Result<T>;
    /// Try again, but not before this much time has passed. It also says that the effect did not take place.
    fn retry_after(self, pause: Duration) -> Result<T>;
    /// It is unknown whether the effect took place.
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
