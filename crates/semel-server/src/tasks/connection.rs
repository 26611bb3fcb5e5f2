//! The connection that a step names with `on`.

use std::sync::Arc;
use std::time::Duration;

use semel::{Attempt, Ctx, Fail};

use super::TaskCall;
use crate::connections::{Connection, Connections, Target};

/// The connection of the step, or why there is none: an operator can mend that, so the step tries again.
pub(super) async fn connection(
    call: &TaskCall<'_>,
    connections: &Connections,
    name: &str,
) -> Result<Arc<Connection>, String> {
    named(call.ctx, connections, name).await
}

/// The connection with this name for a run.
pub(super) async fn named(
    ctx: &Ctx,
    connections: &Connections,
    name: &str,
) -> Result<Arc<Connection>, String> {
    match connections.find(ctx.workspace(), name).await {
        Ok(Some(connection)) => Ok(connection),
        Ok(None) => Err(format!(
            "there is no connection `{name}` for this workspace; an operator can add it, and the step tries again"
        )),
        Err(error) => {
            Err(format!("it is not known whether the workspace may use the connection `{name}`: {error}"))
        }
    }
}

/// What is at the other end of the step's connection, if it is of this type; `kinds` are those that the task can use.
pub(super) fn target<'c, T: Target>(
    connection: &'c Result<Arc<Connection>, String>,
    kinds: &[&str],
) -> Result<(&'c Connection, &'c T), String> {
    let connection = connection.as_ref().map_err(Clone::clone)?;
    match connection.target() {
        Some(target) => Ok((connection, target)),
        None => Err(connection.of_wrong_kind(kinds)),
    }
}

/// The failure of a step whose connection cannot be used: nothing took place.
pub(super) fn missing(why: impl std::fmt::Display) -> Fail {
    Fail::retryable(why).with_code("CONNECTION")
}

/// What the other side answers within a time; none if there was no answer by then.
pub(super) async fn within<T>(
    attempt: &Attempt,
    limit: Duration,
    asking: impl Future<Output = T>,
) -> Option<T> {
    let _outside = attempt.outside();
    let elapsed = attempt.clock().until(attempt.clock().now().after(limit));
    tokio::select! {
        answered = asking => Some(answered),
        () = elapsed => None,
    }
}
