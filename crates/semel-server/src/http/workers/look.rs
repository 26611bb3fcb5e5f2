//! Looking, as an engine elsewhere does: headers, ledgers and inboxes in full.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::remote::wire::{Found, RunCall};
use semel::rules::key::Scope;
use semel::rules::receipt::{ReceiptKind, Receipts};
use semel::store::{Find, FindBy, Page, Part, Query};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Shared;
use super::answer::{Call, Refusal, Told};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};

/// At most so many runs in one list.
const MOST: usize = 10_000;
/// Room for so many entries or messages is made before they are known.
const PAGE: usize = 1_000;
/// Entries of one page of a ledger: as many as a ledger may have, because a page is bounded by its bytes.
const MOST_ENTRIES: usize = 1_000_000;
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
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let found = app.store.find(Find { workspace: caller.workspace, ..find }).await?;
    Ok(Told(found.map(|(mut run, outcome)| {
        // Whoever looks may wait for it.
        workers.known.learn(run.id(), caller.workspace);
        numbers.in_run(&mut run);
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
    Extension(workers): Shared,
    caller: Caller,
    Call(query): Call<Query>,
) -> Result<Told<Page>, Refusal> {
    caller.may(Permission::Worker)?;
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let (limit, look_at) = (query.limit.min(MOST), query.look_at.min(Query::LOOK_AT));
    let query = Query { workspace: caller.workspace, limit, look_at, ..query };
    let mut page = app.store.list(query).await?;
    page.runs.iter_mut().for_each(|run| numbers.in_run(run));
    Ok(Told(page))
}

/// Read the entries of a run.
#[utoipa::path(
    post, path = "/workers/ledger",
    operation_id = "workerLedger", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "from": 1, "maxBytes": 8_388_608})),
    responses((status = 200, body = serde_json::Value, description = "Entries, numbered"), Always, OfRun, Changes),
)]
pub(super) async fn ledger(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(RunCall { run, from, max_bytes }): Call<RunCall>,
) -> Result<Told<Vec<Box<RawValue>>>, Refusal> {
    caller.may(Permission::Worker)?;
    let workspace = caller.workspace;
    let lines = match max_bytes {
        Some(bytes) => {
            app.store.ledger_part(Part { workspace, run, from, limit: MOST_ENTRIES, bytes }).await?.entries
        }
        None => app.store.ledger(workspace, run, from).await?,
    };
    Ok(Told(page(lines, max_bytes)))
}

/// Read what a run has not consumed yet.
#[utoipa::path(
    post, path = "/workers/inbox",
    operation_id = "workerInbox", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "from": 1, "maxBytes": 8_388_608})),
    responses((status = 200, body = serde_json::Value, description = "Messages, numbered"), Always, OfRun, Changes),
)]
pub(super) async fn inbox(
    State(app): State<Arc<App>>,
    caller: Caller,
    Call(RunCall { run, from, max_bytes }): Call<RunCall>,
) -> Result<Told<Vec<Box<RawValue>>>, Refusal> {
    caller.may(Permission::Worker)?;
    Ok(Told(page(app.store.inbox(caller.workspace, run, from).await?, max_bytes)))
}

/// As many of these as fit into so many bytes of the answer; at least one, so that a reader gets on.
fn page<T: Serialize>(all: Vec<T>, max_bytes: Option<usize>) -> Vec<Box<RawValue>> {
    let most = max_bytes.unwrap_or(usize::MAX);
    // The brackets; then a comma for each.
    let (mut page, mut bytes) = (Vec::with_capacity(all.len().min(PAGE)), 2);
    for item in all {
        let text = serde_json::value::to_raw_value(&item).expect("entries and messages are plain data");
        bytes += text.get().len() + 1;
        if bytes > most && !page.is_empty() {
            break;
        }
        page.push(text);
    }
    page
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_fits_and_at_least_one() {
        let count = |max_bytes| page(vec!["aaaa", "bbbb", "cccc"], max_bytes).len();
        assert_eq!((count(None), count(Some(100)), count(Some(16)), count(Some(15))), (3, 3, 2, 1));
        assert_eq!((count(Some(0)), page(Vec::<u8>::new(), Some(0)).len()), (1, 0));
    }
}
