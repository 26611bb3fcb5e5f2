//! Claim: due runs for a worker, at once or as soon as there is one.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use futures_util::FutureExt as _;
use semel::error::Result;
use semel::id::WorkspaceId;
use semel::remote::wire::{self, ClaimCall, ClaimedView, ClaimsView, Served};
use semel::rules::claim::{Claim, Drives, Held};
use semel::rules::ledger::Ledger;
use semel::store::{Claimed, Claims};

use super::answer::{Call, Refusal, Told};
use super::folds::RestingWith;
use super::waiting::{Ask, Tried, Waiting};
use super::{Shared, Workers, node, roster};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{Always, Changes, OfRun};

/// At most so many runs come with one claim.
const MOST: usize = 1_000;
/// At most so many versions of workflows are asked for.
const MOST_WORKFLOWS: usize = 256;
/// Ledgers of more bytes than this, together, are not sent along: the worker reads them one by one.
const LEDGERS: usize = 8 * 1024 * 1024;
/// Messages beyond so many bytes, together, are not sent along: the worker reads them page by page.
const INBOXES: usize = 8 * 1024 * 1024;

/// Take due runs, each with its ledger and inbox.
#[utoipa::path(
    post, path = "/workers/claim",
    operation_id = "workerClaim", tag = "workers",
    request_body(content = Object, content_type = "application/json", example = json!({"node": "node_01j0000000e00800000000007z", "workflows": [{"workflow": "order", "workflowVersion": "2"}], "limit": 10, "waitMs": 30000})),
    responses((status = 200, body = Object, description = "The runs that the worker may drive now"), Always, OfRun, Changes),
)]
pub(super) async fn claim(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    Call(call): Call<ClaimCall>,
) -> Result<Told<ClaimsView>, Refusal> {
    caller.may(Permission::Worker)?;
    if call.limit > MOST || call.workflows.len() > MOST_WORKFLOWS || call.wait_ms > wire::MOST_WAIT_MS {
        return Err(Problem::validation(format!(
            "at most {MOST} runs of {MOST_WORKFLOWS} versions of workflows, after at most {} ms",
            wire::MOST_WAIT_MS
        ))
        .into());
    }
    let _place = (call.wait_ms > 0).then(|| app.bounds.wait(caller.workspace)).transpose()?;
    let served =
        call.workflows.iter().map(|served| format!("{}@{}", served.workflow, served.workflow_version));
    workers.roster.serves(&app, caller.workspace, call.node, served);
    let (workspace, node) = (caller.workspace, node::of(caller.workspace, call.node));
    let workflows = drives(workspace, &call);
    // One that takes nothing must not be called before those that do.
    let waits_for = if call.limit == 0 { Vec::new() } else { workflows.clone() };
    let ask = Ask { workspace, node, workflows: waits_for, wait_ms: call.wait_ms };
    let take = || {
        let held =
            call.keeps.then(|| Arc::new(RestingWith { workers: workers.clone(), node }) as Arc<dyn Held>);
        let claim = Claim { node, workflows: workflows.clone(), limit: call.limit, held };
        let app = app.clone();
        async move {
            let claims = app.store.claim(claim).await?;
            let (is_empty, next_due) = (claims.runs.is_empty(), claims.next_due);
            Ok(Tried { is_empty, more: false, next_due, found: claims })
        }
        .boxed()
    };
    let numbers = workers.numbers.of(&app, workspace).await?;
    let claims = Waiting::claim(&app, &workers, &ask, take).await;
    let mut view = keep(&workers, claims.map_err(|error| roster::own(error, node, call.node))?);
    view.runs.iter_mut().for_each(|claimed| numbers.in_run(&mut claimed.run));
    Ok(Told(view))
}

/// What the worker asks for, in the workspace of its credential.
fn drives(workspace: WorkspaceId, call: &ClaimCall) -> Vec<Drives> {
    let drives = |served: &Served| Drives {
        workspace,
        workflow: served.workflow.clone(),
        workflow_version: served.workflow_version.clone(),
    };
    call.workflows.iter().map(drives).collect()
}

/// Keeps the folds of what was claimed, and leaves out what is too much for one answer.
fn keep(workers: &Workers, claims: Claims) -> ClaimsView {
    let (mut ledgers, mut inboxes) = (0, 0);
    let mut view = |Claimed { run, mut entries, mut inbox }: Claimed| {
        workers.known.learn(run.id(), run.new.workspace);
        match &entries {
            None => workers.folds.resumed(&run),
            // One that does not fold is for the worker to complain about.
            Some(all) => {
                if let Ok(ledger) = Ledger::read(run.clone(), all.iter().cloned()) {
                    ledgers += ledger.weight();
                    workers.folds.claimed(ledger);
                }
                entries = entries.filter(|_| ledgers <= LEDGERS);
            }
        }
        let fits = inbox.iter().take_while(|arrival| {
            inboxes += arrival.message.weight();
            inboxes <= INBOXES
        });
        let left_out = inbox.split_off(fits.count());
        let inbox_from = left_out.first().map(|arrival| arrival.number);
        ClaimedView { run, entries, inbox, inbox_from }
    };
    ClaimsView { runs: claims.runs.into_iter().map(&mut view).collect(), next_due: claims.next_due }
}
