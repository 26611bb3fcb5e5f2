//! Claim: due runs for a worker, at once or as soon as there is one.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use semel::clock::Time;
use semel::error::Result;
use semel::id::WorkspaceId;
use semel::remote::wire::{self, ClaimCall, Served};
use semel::rules::claim::{Claim, Drives, Held};
use semel::rules::ledger::Ledger;
use semel::store::{Claims, Wake};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::answer::{Call, Refusal, Told};
use super::folds::RestingWith;
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
/// How often a waiting claim looks by itself, whatever was heard.
const FLOOR: Duration = Duration::from_secs(1);

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
) -> Result<Told<Claims>, Refusal> {
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
    let mut claims = match call.wait_ms {
        0 => take(&app, &workers, caller.workspace, &call).await?,
        _ => wait(&app, &workers, caller.workspace, &call).await?,
    };
    keep(&workers, &mut claims);
    Ok(Told(claims))
}

async fn take(app: &App, workers: &Arc<Workers>, workspace: WorkspaceId, call: &ClaimCall) -> Result<Claims> {
    let node = node::of(workspace, call.node);
    let held = call.keeps.then(|| Arc::new(RestingWith { workers: workers.clone(), node }) as Arc<dyn Held>);
    let workflows = drives(workspace, call);
    let claims = app.store.claim(Claim { node, workflows, limit: call.limit, held }).await;
    claims.map_err(|error| roster::own(error, node, call.node))
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

/// Waits for something to become due. Of those who ask for the same, one looks; the others wait for its turn to end.
async fn wait(app: &App, workers: &Arc<Workers>, workspace: WorkspaceId, call: &ClaimCall) -> Result<Claims> {
    let end = app.clock.now().after(Duration::from_millis(call.wait_ms));
    let turn = workers.turns.of(drives(workspace, call));
    let _turn = tokio::select! {
        turn = turn.lock() => turn,
        () = app.clock.until(end) => return Ok(Claims::default()),
        () = app.stop.ordered() => return Ok(Claims::default()),
    };
    // Before the first look: what becomes due after it is heard.
    let mut wakes = app.store.wakes();
    loop {
        if app.stop.is_ordered() {
            return Ok(Claims::default());
        }
        let look = app.bounds.look(workspace, call.workflows.len()).await;
        let claims = take(app, workers, workspace, call).await?;
        drop(look);
        let now = app.clock.now();
        if !claims.runs.is_empty() || now >= end {
            return Ok(claims);
        }
        tokio::select! {
            () = something_due(&mut wakes) => {}
            () = app.stop.ordered() => return Ok(claims),
            () = app.clock.until(next_look(now, claims.next_due).min(end)) => {}
        }
    }
}

/// When to look again, if nothing is heard. What is due already is nothing for this worker, and may hide what will be.
pub(super) fn next_look(now: Time, next_due: Option<Time>) -> Time {
    let floor = now.after(FLOOR);
    next_due.filter(|due| *due > now).map_or(floor, |due| due.min(floor))
}

pub(super) async fn something_due(wakes: &mut Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Due | Wake::Arrived(_) | Wake::Settled | Wake::All) | Err(RecvError::Lagged(_)) => {
                // One look is enough for all that was told by now.
                while wakes.try_recv().is_ok() {}
                return;
            }
            Ok(Wake::Taken(_) | Wake::Paused(_) | Wake::Ended(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Keeps the folds of what was claimed, and leaves out ledgers that are too much for one answer.
fn keep(workers: &Workers, claims: &mut Claims) {
    let mut sent = 0;
    for claimed in &mut claims.runs {
        workers.known.learn(claimed.run.id(), claimed.run.new.workspace);
        let Some(entries) = &claimed.entries else {
            workers.folds.resumed(&claimed.run);
            continue;
        };
        // One that does not fold is for the worker to complain about.
        if let Ok(ledger) = Ledger::read(claimed.run.clone(), entries.iter().cloned()) {
            sent += ledger.weight();
            workers.folds.claimed(ledger);
        }
        if sent > LEDGERS {
            claimed.entries = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_for_others_is_not_looked_for_again_and_again() {
        let now = Time(10_000);
        assert_eq!(next_look(now, None), Time(11_000));
        assert_eq!(next_look(now, Some(Time(10_050))), Time(10_050));
        assert_eq!(next_look(now, Some(Time(9_000))), Time(11_000));
        assert_eq!(next_look(now, Some(Time(99_000))), Time(11_000));
    }
}
