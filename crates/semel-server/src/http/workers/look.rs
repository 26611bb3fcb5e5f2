//! Looking, as an engine elsewhere does: headers, ledgers and inboxes in full.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::remote::wire::{Found, RunCall};
use semel::rules::key::Scope;
use semel::rules::receipt::{ReceiptKind, Receipts};
use semel::store::{Arrival, Find, FindBy, Numbered, Page, Query};

use super::Shared;
use super::answer::{Call, Refusal, Told};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};

/// At most so many runs in one list.
const MOST: usize = 10_000;
/// The longest scope: two names and what stands between them.
const LONGEST_SCOPE: usize = 2_000;

/// A scope came as it is stored; what no run can have is refused before it gets to a database.
pub(super) fn check_scope(scope: &Scope) -> Result<(), Problem> {
    match scope.as_str().len() <= LONGEST_SCOPE && !scope.as_str().contains('\0') {
        true => Ok(()),
        false => Err(Problem::validation("no run has this scope; use the one in a run's header")),
    }
}

/// Look a run up by its id, key or token.
#[utoipa::path(
    post, path = "/workers/find",
    operation_id = "workerFind", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"by": {"id": "run_01j0000000e00800000000007z"}})),
    responses((status = 200, body = serde_json::Value, description = "The run and how it ended, or null"), Always, OfRun, Changes),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(find): Call<Find>,
) -> Result<Told<Option<Found>>, Refusal> {
    caller.may(Permission::Worker)?;
    if let FindBy::Key(scope, _) = &find.by {
        check_scope(scope)?;
    }
    let found = app.store.find(Find { workspace: caller.workspace, ..find }).await?;
    Ok(Told(found.map(|(run, outcome)| {
        // Whoever looks may wait for it.
        workers.known.learn(run.id(), caller.workspace);
        Found { run, outcome }
    })))
}

/// List runs, the newest first.
#[utoipa::path(
    post, path = "/workers/list",
    operation_id = "workerList", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"status": null, "workflow": "order", "since": null, "before": null, "limit": 100})),
    responses((status = 200, body = serde_json::Value, description = "A page: headers of runs, the run after which the next page begins, and whether this one is partial"), Always, OfRun, Changes),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(query): Call<Query>,
) -> Result<Told<Page>, Refusal> {
    caller.may(Permission::Worker)?;
    let (limit, look_at) = (query.limit.min(MOST), query.look_at.min(Query::LOOK_AT));
    Ok(Told(app.store.list(Query { workspace: caller.workspace, limit, look_at, ..query }).await?))
}

/// Read the entries of a run.
#[utoipa::path(
    post, path = "/workers/ledger",
    operation_id = "workerLedger", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "from": 1})),
    responses((status = 200, body = serde_json::Value, description = "Entries, numbered"), Always, OfRun, Changes),
)]
pub(super) async fn ledger(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(RunCall { run, from }): Call<RunCall>,
) -> Result<Told<Vec<Numbered>>, Refusal> {
    caller.may(Permission::Worker)?;
    Ok(Told(app.store.ledger(caller.workspace, run, from).await?))
}

/// Read what a run has not consumed yet.
#[utoipa::path(
    post, path = "/workers/inbox",
    operation_id = "workerInbox", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z"})),
    responses((status = 200, body = serde_json::Value, description = "Messages, numbered"), Always, OfRun, Changes),
)]
pub(super) async fn inbox(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(RunCall { run, from }): Call<RunCall>,
) -> Result<Told<Vec<Arrival>>, Refusal> {
    caller.may(Permission::Worker)?;
    Ok(Told(app.store.inbox(caller.workspace, run, from).await?))
}

/// Read what was absorbed on a run.
#[utoipa::path(
    post, path = "/workers/receipts",
    operation_id = "workerReceipts", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z"})),
    responses((status = 200, body = serde_json::Value, description = "Receipts by kind"), Always, OfRun, Changes),
)]
pub(super) async fn receipts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(RunCall { run, .. }): Call<RunCall>,
) -> Result<Told<Vec<(ReceiptKind, Receipts)>>, Refusal> {
    caller.may(Permission::Worker)?;
    Ok(Told(app.store.receipts(caller.workspace, run).await?))
}
