//! The clock of a development server, which tests move forward.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use semel::rules::start::MAX_DELAY;

use super::Shared;
use super::answer::Told;
use crate::access::Caller;
use crate::api::{AdvanceClock, ClockView, Permission, time};
use crate::app::App;
use crate::http::Problem;
use crate::http::body::Body;
use crate::http::describe::{Always, Oversize};

/// Move the time of a development server forward. What is due then, such as sleeps of workflows, happens at once.
///
/// Only servers that were started with `semel dev --clock manual` have this route. No lease of a worker ends by it.
#[utoipa::path(
    post, path = "/dev/clock",
    operation_id = "advanceClock", tag = "operations",
    request_body(content = AdvanceClock, example = json!({"advanceMs": 604_800_000})),
    responses((status = 200, body = ClockView, description = "The time of the server now"), Always, Oversize),
)]
pub(super) async fn advance(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Body(AdvanceClock { advance_ms }): Body<AdvanceClock>,
) -> Result<Told<ClockView>, Problem> {
    caller.may(Permission::Admin)?;
    let by = Duration::from_millis(advance_ms);
    if by > MAX_DELAY {
        let most = MAX_DELAY.as_millis();
        return Err(Problem::validation(format!(
            "one call moves the clock by at most {most} ms; choose less"
        )));
    }
    let clock = app.forward.as_ref().ok_or_else(|| {
        Problem::validation("this server has no clock of its own; start it with `semel dev --clock manual`")
    })?;
    workers.roster.prolong(&app, by).await?;
    if let Some(engine) = &app.engine {
        engine.prolong_lease(by).await?;
    }
    clock.advance(by);
    Ok(Told(ClockView { now: time(app.clock.now()) }))
}
