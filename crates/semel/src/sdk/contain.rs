//! User code under watch: whatever becomes of it is its own outcome, and nobody else's.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::ctx::Ctx;
use super::fail::{Fail, Result};
use crate::engine::panic_text;
use crate::rules::entry::FailureKind;

/// Runs user code: a panic or too long a time is its failure, and nobody else's.
pub(crate) async fn contained<T>(
    ctx: &Ctx,
    timeout: Option<Duration>,
    body: impl Future<Output = Result<T>>,
) -> Result<T> {
    watched(ctx, timeout, pin!(body)).await
}

/// The same for a future that has its place already: to move it here would take as much room again.
pub(crate) fn watched<T>(
    ctx: &Ctx,
    timeout: Option<Duration>,
    mut body: Pin<&mut impl Future<Output = Result<T>>>,
) -> impl Future<Output = Result<T>> {
    let clock = &ctx.cell.core.clock;
    let mut limit = timeout.map(|timeout| clock.until(clock.now().after(timeout)));
    poll_fn(move |cx| match guarded(ctx, || body.as_mut().poll(cx)) {
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

/// Calls user code of an effect: a panic is its failure, and what it asks the workflow for is refused.
pub(crate) fn guarded<T>(ctx: &Ctx, code: impl FnOnce() -> T) -> Result<T> {
    let _inside = ctx.cell.enter_body();
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|panic| Fail::new(FailureKind::Panic, format_args!("it panicked: {}", panic_text(&*panic))))
}
