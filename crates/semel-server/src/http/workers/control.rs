//! Control and once, as an engine elsewhere does.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::rules::control::{Action, Control, Controlled};
use semel::rules::entry::Resolution;
use semel::rules::once::{Ask, Once, OnceAnswer, OnceScope};

use super::Shared;
use super::answer::{Call, Refusal, Told};
use super::look::check_scope;
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::describe::{Always, Changes, OfRun};

/// Cancel, pause, resume, restart or fork a run; free its key; resolve a doubt.
#[utoipa::path(
    post, path = "/workers/control",
    operation_id = "workerControl", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "action": "pause", "by": "ann", "id": null, "expected": null})),
    responses((status = 200, body = Object, description = "The run as it is now"), Always, OfRun, Changes),
)]
pub(super) async fn control(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(control): Call<Control>,
) -> Result<Told<Controlled>, Refusal> {
    // A driver may pause its run by a commit as well: an engine does it this way if its commit is refused.
    caller.may(match control.action {
        Action::Pause => Permission::Worker,
        _ => Permission::Admin,
    })?;
    if let Action::Resolve { resolution: Resolution::Happened(value), .. } = &control.action {
        value.check().map_err(semel::Error::from)?;
    }
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let mut controlled = app.store.control(Control { workspace: caller.workspace, ..control }).await?;
    numbers.in_run(&mut controlled.run);
    Ok(Told(controlled))
}

/// Claim, settle or release a once beyond one run.
#[utoipa::path(
    post, path = "/workers/once",
    operation_id = "workerOnce", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"scope": "workspace", "label": "rates", "run": "run_01j0000000e00800000000007z", "ask": "claim"})),
    responses((status = 200, body = Object, description = "The result, or the right to make it"), Always, OfRun, Changes),
)]
pub(super) async fn once(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(once): Call<Once>,
) -> Result<Told<OnceAnswer>, Refusal> {
    caller.may(Permission::Worker)?;
    if let OnceScope::Key(scope, _) = &once.scope {
        check_scope(scope)?;
    }
    if let Ask::Settle { value, .. } = &once.ask {
        value.check().map_err(semel::Error::from)?;
    }
    Ok(Told(app.store.once(Once { workspace: caller.workspace, ..once }).await?))
}
