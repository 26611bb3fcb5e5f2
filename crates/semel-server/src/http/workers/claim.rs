//! Claim: due runs for a worker, at once or as soon as there is one.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use futures_util::FutureExt as _;
use semel::error::Result;
use semel::id::WorkspaceId;
use semel::remote::wire::{ClaimCall, ClaimedView, ClaimsView, FoldedClaims, FoldedRun, Served};
use semel::rules::claim::{Claim, Drives, HeldRuns, MOST_BYTES};
use semel::rules::key::CallId;
use semel::rules::ledger::Ledger;
use semel::rules::run::Run;
use semel::store::{Arrival, Claimed};
use serde::Serialize;
use utoipa::openapi::schema::{AnyOfBuilder, Schema};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::again::{ClaimUnderId, HeldClaims};
use super::answer::{CallBody, Refusal, Told};
use super::folds::RestingWith;
use super::request::{ClaimRequest, ClaimWish};
use super::waiting::ClaimTried;
use super::{Shared, Workers, again, node};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::asked::CallKey;
use crate::http::describe::{IdempotencyKey, SpokenProtocol, WorkerProblems};

/// Maximum number of workflow versions in one claim.
const MOST_WORKFLOWS: usize = 256;
/// Maximum bytes of ledgers in one answer; the worker reads the others one by one.
const LEDGERS: usize = 8 * 1024 * 1024;
/// Maximum bytes of inbox messages in one answer; the worker reads the others page by page.
const INBOXES: usize = 8 * 1024 * 1024;

/// Claim due runs, each with its ledger and inbox. With an `Idempotency-Key`, a repetition of the worker's last claim gets the
/// same runs again.
#[utoipa::path(
    post, path = "/workers/claim",
    operation_id = "workerClaim", tag = "workers",
    request_body(content = ClaimCall, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "workflows": [{"workflow": "order", "workflowVersion": "2"}], "limit": 10, "waitMs": 30000})),
    params(IdempotencyKey, SpokenProtocol),
    responses((status = 200, body = ClaimAnswer, description = "The claimed runs"), WorkerProblems),
)]
pub(super) async fn claim(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    key: CallKey,
    CallBody(call): CallBody<ClaimCall>,
) -> Result<Told<ClaimAnswer>, Refusal> {
    caller.may(Permission::Worker)?;
    if call.run.is_some() && call.wait_ms > 0 {
        return Err(Problem::validation("a claim of one `run` does not wait: leave `waitMs` out").into());
    }
    let (folded, workspace) = (call.folded, caller.workspace);
    let held = match key.0 {
        None => take(app.clone(), workers.clone(), caller, call).await?,
        Some(id) => take_once(app.clone(), workers.clone(), caller, call, id).await?,
    };
    if folded {
        return Ok(Told(ClaimAnswer::Folded(fold(&workers, held))));
    }
    let numbers = workers.numbers.of(&app, workspace).await?;
    let mut view = keep(&workers, held);
    view.runs.iter_mut().for_each(|claimed| claimed.run.num = numbers.hide(claimed.run.num));
    Ok(Told(ClaimAnswer::Ledgers(view)))
}

/// The answer to a claim: folded runs, or headers and entries.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ClaimAnswer {
    Folded(FoldedClaims),
    Ledgers(ClaimsView),
}

/// Not a `oneOf`: an answer without runs is both.
impl PartialSchema for ClaimAnswer {
    fn schema() -> RefOr<Schema> {
        let any = [FoldedClaims::name(), ClaimsView::name()].map(Ref::from_schema_name);
        let description = "What a claim with `folded` found, or one without it";
        let any = any.into_iter().fold(AnyOfBuilder::new(), AnyOfBuilder::item);
        RefOr::T(any.description(Some(description)).into())
    }
}

impl ToSchema for ClaimAnswer {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((FoldedClaims::name().into_owned(), FoldedClaims::schema()));
        schemas.push((ClaimsView::name().into_owned(), ClaimsView::schema()));
        FoldedClaims::schemas(schemas);
        ClaimsView::schemas(schemas);
    }
}

/// Claims under an id: the repetition of the worker's last claim is given the same runs, as far as the worker still holds
/// them.
async fn take_once(
    app: Arc<App>,
    workers: Arc<Workers>,
    caller: Caller,
    call: ClaimCall,
    id: CallId,
) -> Result<HeldClaims, Refusal> {
    let place = (caller.workspace, node::of(caller.workspace, call.node));
    let last = workers.last_claims.of(place.0, place.1);
    let claimed_by = workers.clone();
    // In a task of its own: if the client disconnects, its repetition finds what was claimed.
    let done = tokio::spawn(async move {
        let mut last = last.lock().await;
        if let Some(claim) = last.as_ref().filter(|claim| claim.id == id) {
            return again::held(&app, place, &claim.runs, MOST_BYTES).await.map_err(Refusal::from);
        }
        *last = None;
        let held = take(app, workers, caller, call).await?;
        let runs: Vec<_> = held.claims.runs.iter().map(|claimed| claimed.run.id()).collect();
        claimed_by.last_claims.weigh(place.1, runs.len());
        *last = Some(ClaimUnderId { id, runs });
        Ok(held)
    });
    done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?
}

async fn take(
    app: Arc<App>,
    workers: Arc<Workers>,
    caller: Caller,
    call: ClaimCall,
) -> Result<HeldClaims, Refusal> {
    let drives = drives(caller.workspace, &call);
    let wanted = ClaimWish {
        node: call.node,
        drives: drives.clone(),
        most: MOST_WORKFLOWS,
        limit: call.limit,
        wait_ms: call.wait_ms,
    };
    let request = ClaimRequest::checked(&app, &workers, &caller, wanted)?;
    let node = request.node;
    // A folded run has all that it is driven with: nothing is left out for what the worker may have in memory.
    let keeps = call.keeps && !call.folded;
    let take = || {
        let held =
            keeps.then(|| Arc::new(RestingWith { workers: workers.clone(), node }) as Arc<dyn HeldRuns>);
        let claim = Claim { held, only: call.run, ..Claim::new(node, drives.clone(), call.limit) };
        let app = app.clone();
        async move {
            let claims = app.store.claim(claim).await?;
            let (is_empty, next_due) = (claims.runs.is_empty(), claims.next_due);
            Ok(ClaimTried { is_empty, more: false, next_due, found: claims })
        }
        .boxed()
    };
    let claims = request.claim(&app, &workers, take).await?;
    match call.run.filter(|_| claims.runs.is_empty()) {
        Some(run) => Ok(again::held(&app, (caller.workspace, node), &[run], MOST_BYTES).await?),
        None => Ok(HeldClaims { claims, left_out: Vec::new() }),
    }
}

/// The workflow versions that a claim names, in the workspace of the worker's credential.
fn drives(workspace: WorkspaceId, call: &ClaimCall) -> Vec<Drives> {
    let drives = |served: &Served| Drives {
        workspace,
        workflow: served.workflow.clone(),
        workflow_version: served.workflow_version.clone(),
    };
    call.workflows.iter().map(drives).collect()
}

/// Keeps the folds of the claimed runs, and gives them whole. A run that does not fit is claimed by its id next.
fn fold(workers: &Workers, HeldClaims { claims, left_out }: HeldClaims) -> FoldedClaims {
    let mut answer = FoldedClaims { next_due: claims.next_due, now: claims.now, ..FoldedClaims::default() };
    let mut bytes = 0;
    for Claimed { run, entries, inbox } in claims.runs {
        let id = run.id();
        workers.known.learn(id, run.new.workspace);
        let ledger = match Ledger::read(run, entries.unwrap_or_default()) {
            Ok(ledger) => ledger,
            Err(error) => {
                tracing::error!(run = %id, %error, "the ledger of a claimed run cannot be read");
                continue;
            }
        };
        bytes += ledger.weight() + inbox.iter().map(|arrival| arrival.message.weight()).sum::<usize>();
        if bytes > LEDGERS && !answer.runs.is_empty() {
            answer.left_out.push(id);
        } else {
            let (inbox, inbox_from) = fitting(inbox, &mut 0);
            let inbox = inbox.into_iter().map(Into::into).collect();
            answer.runs.push(FoldedRun { inbox, inbox_from, ..FoldedRun::of(&ledger) });
        }
        workers.folds.claimed(ledger);
    }
    answer.left_out.extend(left_out.iter().map(Run::id));
    answer
}

/// The messages that still fit into an answer with `bytes` of messages, and the number of the first that does not fit.
fn fitting(mut inbox: Vec<Arrival>, bytes: &mut usize) -> (Vec<Arrival>, Option<u64>) {
    let fits = inbox.iter().take_while(|arrival| {
        *bytes += arrival.message.weight();
        *bytes <= INBOXES
    });
    let left_out = inbox.split_off(fits.count());
    (inbox, left_out.first().map(|arrival| arrival.number))
}

/// Keeps the folds of the claimed runs, and leaves out what is too large for one answer.
fn keep(workers: &Workers, HeldClaims { claims, left_out }: HeldClaims) -> ClaimsView {
    let (mut ledgers, mut inboxes) = (0, 0);
    let mut view = |Claimed { run, mut entries, inbox }: Claimed| {
        workers.known.learn(run.id(), run.new.workspace);
        match &entries {
            None => workers.folds.resumed(&run),
            // A ledger that does not fold is reported by the worker.
            Some(all) => {
                if let Ok(ledger) = Ledger::read(run.clone(), all.iter().cloned()) {
                    ledgers += ledger.weight();
                    workers.folds.claimed(ledger);
                }
                entries = entries.filter(|_| ledgers <= LEDGERS);
            }
        }
        let (inbox, inbox_from) = fitting(inbox, &mut inboxes);
        let (run, inbox) = (run.into(), inbox.into_iter().map(Into::into).collect());
        ClaimedView { run, entries, inbox, inbox_from }
    };
    let mut runs: Vec<_> = claims.runs.into_iter().map(&mut view).collect();
    // The worker reads all of these itself.
    let unread =
        |run: Run| ClaimedView { run: run.into(), entries: None, inbox: Vec::new(), inbox_from: Some(1) };
    runs.extend(left_out.into_iter().map(unread));
    ClaimsView { runs, next_due: claims.next_due, now: claims.now }
}
