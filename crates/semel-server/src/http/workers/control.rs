//! Control and once, as an engine elsewhere does.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::remote::wire::ControlCall;
use semel::rules::control::{Action, Control, Controlled};
use semel::rules::entry::Resolution;
use semel::rules::once::{Ask, Once, OnceAnswer, OnceScope};

use super::Shared;
use super::answer::{Call, Refusal, Told};
use super::look::check_scope;
use super::node;
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};
use crate::http::wait::found;

/// A worker has one node; for a moment two, when it goes on as another.
const MOST_NODES: usize = 16;
/// The longest reason that a worker gives for a pause, in characters.
const LONGEST_BY: usize = 2_000;

/// Control a run: needs the permission `admin`. A worker may pause a run that it holds.
///
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
    Call(call): Call<ControlCall>,
) -> Result<Told<Controlled>, Refusal> {
    let control = match (&call.action, call.nodes.as_slice()) {
        // A driver may pause its run by a commit as well: an engine does it this way if its commit is refused.
        (Action::Pause, [_, ..]) if caller.may(Permission::Admin).is_err() => {
            own(&app, &caller, call).await?
        }
        _ => {
            caller.may(Permission::Admin)?;
            call.control(caller.workspace)
        }
    };
    if let Action::Resolve { resolution: Resolution::Happened(value), .. } = &control.action {
        value.check().map_err(semel::Error::from)?;
    }
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let mut controlled = app.store.control(control).await?;
    numbers.in_run(&mut controlled.run);
    Ok(Told(controlled))
}

/// The pause of a run by the worker that holds it. It is bound to the version at which the worker holds the run.
async fn own(app: &App, caller: &Caller, call: ControlCall) -> Result<Control, Refusal> {
    caller.may(Permission::Worker)?;
    if call.nodes.len() > MOST_NODES {
        return Err(Problem::validation(format!("at most {MOST_NODES} nodes of one worker")).into());
    }
    let (run, expected) = (call.run, call.expected);
    let (found, _) = found(app, caller.workspace, run).await?;
    let version = found.state.version;
    let held = found
        .state
        .node
        .is_some_and(|holder| call.nodes.iter().any(|drawn| node::of(caller.workspace, *drawn) == holder));
    if !held {
        return Err(semel::Error::Concurrency { run, expected: expected.unwrap_or(version) }.into());
    }
    let by: String = format!("{}: {}", caller.name, call.by).chars().take(LONGEST_BY).collect();
    let control = call.control(caller.workspace);
    Ok(Control { by, expected: Some(expected.unwrap_or(version)), ..control })
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
