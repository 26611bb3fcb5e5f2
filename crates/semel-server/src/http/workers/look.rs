//! Reads for remote engines: headers, and ledgers and inboxes page by page.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use semel::id::RunId;
use semel::remote::wire::{self, ArrivedMessage, CountCall, FoundRun, NumberedEntry, RunCall, RunPage};
use semel::rules::key::Scope;
use semel::rules::receipt::{ReceiptKind, Receipts};
use semel::store::{Find, FindBy, Part, Query, RunCounts};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::Shared;
use super::answer::{CallBody, Refusal, Told};
use crate::access::Caller;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{SpokenProtocol, WorkerProblems};

/// Maximum number of runs in one list, and of counted runs of one status.
const MOST: usize = 10_000;
/// Initial capacity for entries or messages whose number is not known yet.
const PAGE: usize = 1_000;
/// Maximum number of entries on a page of a ledger: that of a whole ledger, because a page is bounded by its bytes.
const MOST_ENTRIES: usize = 1_000_000;
/// Maximum size of a page of a ledger or an inbox, in bytes, and its size if the caller does not say one.
const PAGE_BYTES: usize = wire::BODY_BYTES;
/// Maximum length of a scope: two names and their separators.
const LONGEST_SCOPE: usize = 2_000;

/// Checks a scope in its stored form: an impossible one is refused before it reaches a database.
pub(super) fn check_scope(scope: &Scope) -> Result<(), Problem> {
    match scope.as_str().len() <= LONGEST_SCOPE && !scope.as_str().contains('\0') {
        true => Ok(()),
        false => Err(Problem::validation("no run has this scope; use the one in a run's header")),
    }
}

/// Find a run by its id, key or token.
#[utoipa::path(
    post, path = "/workers/find",
    operation_id = "workerFind", tag = "workers",
    request_body(content = Find, content_type = "application/json", example = json!({"by": {"id": "run_01j0000000e00800000000007z"}})),
    params(SpokenProtocol),
    responses((status = 200, body = Option<FoundRun>, description = "The run and its outcome, or null"), WorkerProblems),
)]
pub(super) async fn find(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(find): CallBody<Find>,
) -> Result<Told<Option<FoundRun>>, Refusal> {
    caller.may_read_or_work()?;
    if let FindBy::Key(scope, _) = &find.by {
        check_scope(scope)?;
    }
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let found = app.store.find(Find { workspace: caller.workspace, ..find }).await?;
    Ok(Told(found.map(|(mut run, outcome)| {
        // The caller may wait for the run.
        workers.known.learn(run.id(), caller.workspace);
        numbers.in_run(&mut run);
        FoundRun { run: run.into(), outcome }
    })))
}

/// List runs, newest first.
#[utoipa::path(
    post, path = "/workers/list",
    operation_id = "workerList", tag = "workers",
    request_body(content = Query, content_type = "application/json", example = json!({"status": null, "workflow": "order", "since": null, "before": null, "limit": 100})),
    params(SpokenProtocol),
    responses((status = 200, body = RunPage, description = "A page: headers of runs, the run after which the next page begins, and whether this one is partial"), WorkerProblems),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    CallBody(query): CallBody<Query>,
) -> Result<Told<RunPage>, Refusal> {
    caller.may_read_or_work()?;
    let numbers = workers.numbers.of(&app, caller.workspace).await?;
    let (limit, look_at) = (query.limit.min(MOST), query.look_at.min(Query::LOOK_AT));
    let query = Query { workspace: caller.workspace, limit, look_at, ..query };
    let mut page = app.store.list(query).await?;
    page.runs.iter_mut().for_each(|run| numbers.in_run(run));
    Ok(Told(page.into()))
}

/// Count the open runs of the workspace, by workflow.
#[utoipa::path(
    post, path = "/workers/counts",
    operation_id = "workerCounts", tag = "workers",
    request_body(content = CountCall, content_type = "application/json", example = json!({"cap": 10_000})),
    params(SpokenProtocol),
    responses((status = 200, body = RunCounts, description = "Open and paused runs of each workflow, and paused runs with a step in doubt"), WorkerProblems),
)]
pub(super) async fn counts(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(CountCall { cap }): CallBody<CountCall>,
) -> Result<Told<RunCounts>, Refusal> {
    caller.may_read_or_work()?;
    Ok(Told(app.store.counts_in(caller.workspace, cap.min(MOST as u64)).await?))
}

/// Read the entries of a run, page by page: the next page begins after the last number of this one.
#[utoipa::path(
    post, path = "/workers/ledger",
    operation_id = "workerLedger", tag = "workers",
    request_body(content = RunCall, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "from": 1, "maxBytes": 8_388_608})),
    params(SpokenProtocol),
    responses((status = 200, body = Vec<NumberedEntry>, description = "Entries, numbered"), WorkerProblems),
)]
pub(super) async fn ledger(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(RunCall { run, from, max_bytes }): CallBody<RunCall>,
) -> Result<Told<Vec<Box<RawValue>>>, Refusal> {
    caller.may_read_or_work()?;
    let part = part(&caller, run, from, max_bytes);
    let entries = app.store.ledger_part(part).await?.entries;
    Ok(Told(page(entries.into_iter().map(NumberedEntry::from), part.bytes)))
}

/// Read the unconsumed messages of a run, page by page: the next page begins after the last number of this one.
#[utoipa::path(
    post, path = "/workers/inbox",
    operation_id = "workerInbox", tag = "workers",
    request_body(content = RunCall, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z", "from": 1, "maxBytes": 8_388_608})),
    params(SpokenProtocol),
    responses((status = 200, body = Vec<ArrivedMessage>, description = "Messages, numbered"), WorkerProblems),
)]
pub(super) async fn inbox(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(RunCall { run, from, max_bytes }): CallBody<RunCall>,
) -> Result<Told<Vec<Box<RawValue>>>, Refusal> {
    caller.may_read_or_work()?;
    let part = part(&caller, run, from, max_bytes);
    let messages = app.store.inbox_part(part).await?;
    Ok(Told(page(messages.into_iter().map(ArrivedMessage::from), part.bytes)))
}

/// The part of a ledger or an inbox that a caller asks for.
fn part(caller: &Caller, run: RunId, from: u64, max_bytes: Option<usize>) -> Part {
    let bytes = max_bytes.unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
    Part { workspace: caller.workspace, run, from, limit: MOST_ENTRIES, bytes }
}

/// As many items as fit into `most` bytes of the answer; at least one, so that the reader makes progress.
fn page(
    all: impl IntoIterator<Item: Serialize, IntoIter: ExactSizeIterator>,
    most: usize,
) -> Vec<Box<RawValue>> {
    let all = all.into_iter();
    // Two bytes for the brackets, and one for each comma.
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

/// A kind of receipts, and the receipts: a list of two.
enum KindAndReceipts {}

impl PartialSchema for KindAndReceipts {
    fn schema() -> RefOr<Schema> {
        let either = AnyOfBuilder::new()
            .item(Ref::from_schema_name(ReceiptKind::name()))
            .item(Ref::from_schema_name(Receipts::name()));
        let pair = ArrayBuilder::new().items(either).min_items(Some(2)).max_items(Some(2));
        RefOr::T(pair.description(Some("A kind, and the receipts of this kind")).into())
    }
}

impl ToSchema for KindAndReceipts {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((ReceiptKind::name().into_owned(), ReceiptKind::schema()));
        schemas.push((Receipts::name().into_owned(), Receipts::schema()));
        Receipts::schemas(schemas);
    }
}

/// Read the absorbed duplicates of a run.
#[utoipa::path(
    post, path = "/workers/receipts",
    operation_id = "workerReceipts", tag = "workers",
    request_body(content = RunCall, content_type = "application/json", example = json!({"run": "run_01j0000000e00800000000007z"})),
    params(SpokenProtocol),
    responses((status = 200, body = Vec<KindAndReceipts>, description = "Receipts by kind"), WorkerProblems),
)]
pub(super) async fn receipts(
    State(app): State<Arc<App>>,
    caller: Caller,
    CallBody(RunCall { run, .. }): CallBody<RunCall>,
) -> Result<Told<Vec<(ReceiptKind, Receipts)>>, Refusal> {
    caller.may_read_or_work()?;
    Ok(Told(app.store.receipts(caller.workspace, run).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_what_fits_and_at_least_one() {
        let count = |most| page(vec!["aaaa", "bbbb", "cccc"], most).len();
        assert_eq!((count(100), count(16), count(15)), (3, 2, 1));
        assert_eq!((count(0), page(Vec::<u8>::new(), 0).len()), (1, 0));
    }
}
