//! Remote steps: done elsewhere, by the worker that takes them from a queue.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::child::Child;
use super::ctx::{Boxed, Ctx};
use crate::fail::{Result, fatal};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::path::Name;
use crate::rules::queue::{self, RemoteStep};
use crate::rules::retry::Retry;

/// A step for a queue that has not been handed over. It is when it is awaited.
#[must_use = "a step is handed over when it is awaited"]
pub struct RemoteBegin<'a, Out> {
    ctx: &'a Ctx,
    name: String,
    queue: String,
    input: Result<Payload, InvalidJson>,
    key: Option<String>,
    indexed: bool,
    retry: Retry,
    timeout: Option<Duration>,
    out: PhantomData<fn() -> Out>,
}

impl<Out> fmt::Debug for RemoteBegin<'_, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({} to {})", self.name, self.queue)
    }
}

impl<'a, Out> RemoteBegin<'a, Out> {
    pub(super) fn new(
        ctx: &'a Ctx,
        name: String,
        queue: String,
        input: Result<Payload, InvalidJson>,
    ) -> Self {
        let retry = Retry::default();
        Self { ctx, name, queue, input, key: None, indexed: false, retry, timeout: None, out: PhantomData }
    }

    /// Tells this step from others of the same name: its path is `name[key]`.
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Counts the visits of this step: the second one is `name#2`.
    pub fn indexed(mut self) -> Self {
        self.indexed = true;
        self
    }

    /// How it is tried again. Three times, if nothing is said. A worker that dies costs none of its tries.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long one try may take. The worker is told, and gives up by then.
    ///
    /// ```
    /// # use semel::{Ctx, Result, Retry};
    /// # use std::time::Duration;
    /// # async fn workflow(ctx: Ctx, cents: u64) -> Result<String> {
    /// // Five minutes for each of two tries, whichever worker of the queue takes them.
    /// let (retry, time) = (Retry::exponential().max_attempts(2), Duration::from_mins(5));
    /// ctx.remote("charge", "payments", cents).retry(retry).timeout(time).await
    /// # }
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn hand_over(self) -> Result<Child<Out>> {
        let Self { ctx, name, queue, input, key, indexed, retry, timeout, .. } = self;
        let workflow = Name::new(&queue).and_then(|queue| queue::workflow(&queue)).map_err(fatal)?;
        let step = ctx.visit(&name, key.as_deref(), indexed)?;
        let timeout_ms = timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let remote = RemoteStep { step: step.clone(), input: input.map_err(fatal)?, retry, timeout_ms };
        let input = Payload::of(&remote).map_err(fatal)?;
        ctx.begin_child(step, &workflow, &queue::version(), &input).await
    }
}

impl<'a, Out: DeserializeOwned + Send + 'a> IntoFuture for RemoteBegin<'a, Out> {
    type Output = Result<Out>;
    type IntoFuture = Boxed<'a, Out>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.hand_over().await?.result().await })
    }
}
