//! Control and once, for remote engines.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::remote::wire::{ControlCall, ControlledRun};
use semel::rules::control::{Control, ControlAction};
use semel::rules::entry::Resolution;
use semel::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};

use super::Shared;
use super::answer::{CallBody, Refusal, Told};
use super::look::check_scope;
use super::node;
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{SpokenProtocol, WorkerProblems};
use crate::http::wait::found;

/// A worker has one node, and briefly two while it replaces one by another.
const MOST_NODES: usize = 16;
/// Maximum length of a worker's pause reason, in characters.
const LONGEST_BY: usize = 2_000;

/// Control a run. Needs the permission `admin`, except that a worker may pause a run that it holds.
///
/// Cancel, pause, resume, restart or fork a run; release its key; resolve a step in doubt.
#[utoipa::path(
    post, path = "/workers/control",
    operation_id = "workerControl", tag = "workers",
    request_body(content = ControlCall, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "action": "pause", "by": "ann", "id": null, "expected": null})),
    params(SpokenProtocol),
    responses((status = 200, body = ControlledRun, description = "The run after the call"), WorkerProblems),
)]
pub(super) async fn control(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(call): CallBody<ControlCall>,
) -> Result<Told<ControlledRun>, Refusal> {
    let control = match (&call.action, call.nodes.as_slice()) {
        // A driver can also pause its run by a commit. An engine uses this call if its commit is refused.
        (ControlAction::Pause, [_, ..]) if caller.may(Permission::Operate).is_err() => {
            own(&app, &caller, call).await?
        }
        _ => {
            caller.may(Permission::Operate)?;
            call.control(caller.workspace)
        }
    };
    if let ControlAction::Resolve { resolution: Resolution::Happened(value), .. } = &control.action {
        value.check().map_err(semel::Error::from)?;
    }
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let open_runs = &app.bounds.open_runs;
    let mut controlled = open_runs.control(&*app.store, app.clock.now(), control).await?;
    numbers.in_run(&mut controlled.run);
    Ok(Told(controlled.into()))
}

/// The pause of a run by the worker that holds it, bound to the version at which the worker holds the run.
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

/// Claim, settle or release a result of `run_once` that is shared between runs.
#[utoipa::path(
    post, path = "/workers/once",
    operation_id = "workerOnce", tag = "workers",
    request_body(content = OnceCall, content_type = "application/json", example = json!({"scope": "workspace", "label": "rates", "run": "run_01j0000000e00800000000007z", "ask": "claim"})),
    params(SpokenProtocol),
    responses((status = 200, body = OnceAnswer, description = "The recorded result, or the right to produce it"), WorkerProblems),
)]
pub(super) async fn once(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(once): CallBody<OnceCall>,
) -> Result<Told<OnceAnswer>, Refusal> {
    caller.may(Permission::Worker)?;
    if let OnceScope::Key(scope, _) = &once.scope {
        check_scope(scope)?;
    }
    if let Ask::Settle { value, .. } = &once.ask {
        value.check().map_err(semel::Error::from)?;
    }
    Ok(Told(app.store.once(OnceCall { workspace: caller.workspace, ..once }).await?))
}
