//! User code of effects: a panic or a timeout is its own outcome, and that of nothing else.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tracing::{Level, Span};

use super::ctx::Ctx;
use crate::fail::{Fail, Result};
use crate::rules::entry::FailureKind;
use crate::rules::path::Visit;

/// Where user code of an effect runs: its run, and the span of its attempt if a subscriber wants that.
pub(crate) struct BodyScope<'a> {
    pub(crate) ctx: &'a Ctx,
    /// Boxed, because every step that waits has room for it.
    pub(crate) span: Option<Box<Span>>,
}

/// The span of an attempt at a step. Without a subscriber it costs a comparison.
pub(crate) fn step_span(visit: &Visit, attempt: u32) -> Option<Box<Span>> {
    tracing::enabled!(Level::INFO).then(|| Box::new(tracing::info_span!("step", path = %visit, attempt)))
}

impl BodyScope<'_> {
    /// Calls user code of an effect: a panic is its failure, and what it asks the workflow for is refused.
    pub(crate) fn guarded<T>(&self, code: impl FnOnce() -> T) -> Result<T> {
        let _in_span = self.span.as_ref().map(|span| span.enter());
        let _inside = self.ctx.cell.enter_body();
        catch_unwind(AssertUnwindSafe(code)).map_err(|panic| Fail::panicked("it", &*panic))
    }
}

/// Runs user code: a panic or too long a time is its failure, and that of nothing else.
pub(crate) async fn contained<T>(
    scope: BodyScope<'_>,
    timeout: Option<Duration>,
    body: impl Future<Output = Result<T>>,
) -> Result<T> {
    watched(scope, timeout, pin!(body)).await
}

/// The same for a future that has its place already: to move it here would take as much room again.
pub(crate) fn watched<T>(
    scope: BodyScope<'_>,
    timeout: Option<Duration>,
    mut body: Pin<&mut impl Future<Output = Result<T>>>,
) -> impl Future<Output = Result<T>> {
    let clock = scope.ctx.cell.clock();
    let mut limit = timeout.map(|timeout| clock.until(clock.now().after(timeout)));
    poll_fn(move |cx| match scope.guarded(|| body.as_mut().poll(cx)) {
        Ok(Poll::Ready(result)) => Poll::Ready(result),
        Err(fail) => Poll::Ready(Err(fail)),
        Ok(Poll::Pending) => match limit.as_mut().map(|limit| limit.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => {
                let after = timeout.unwrap_or_default();
                Poll::Ready(Err(Fail::new(
                    FailureKind::Timeout,
                    format_args!("it took longer than {after:?}"),
                )))
            }
            _ => Poll::Pending,
        },
    })
}
