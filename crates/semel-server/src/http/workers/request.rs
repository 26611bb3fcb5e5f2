//! The request of a claim, for runs or for steps of queues: checks what both have in common, and waits for the result.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use semel::clock::Time;
use semel::error::Result;
use semel::id::{NodeId, WorkspaceId};
use semel::remote::wire;
use semel::rules::claim::Drives;

use super::answer::Refusal;
use super::waiting::{ClaimTried, Waiting};
use super::{Workers, node, roster};
use crate::access::{Caller, Part};
use crate::app::App;
use crate::http::Problem;
use crate::http::services::title;
use crate::http::start::no_definition_version;

/// What a worker asks for.
pub(super) struct ClaimWish {
    /// Node id that the worker has drawn.
    pub(super) node: NodeId,
    /// Workflow versions to claim runs of.
    pub(super) drives: Vec<Drives>,
    /// Maximum number of `drives`.
    pub(super) most: usize,
    /// Maximum number of runs to claim.
    pub(super) limit: usize,
    /// Milliseconds to wait for the first one.
    pub(super) wait_ms: u64,
    /// Whether the worker only looks, and claims by another call.
    pub(super) looks: bool,
}

/// A checked request.
pub(super) struct ClaimRequest {
    pub(super) workspace: WorkspaceId,
    /// Node of the worker, as the store knows it.
    pub(super) node: NodeId,
    pub(super) workflows: Vec<Drives>,
    pub(super) wait_ms: u64,
    /// Whether the worker only looks, and claims by another call.
    pub(super) looks: bool,
    /// Node id that the worker has drawn, for errors.
    drawn: NodeId,
    /// The workspace's share of waiting calls, held until the request is dropped.
    _share: Option<Part>,
}

impl ClaimRequest {
    /// Checks the limits, takes a place for a call that waits, and records what the worker serves.
    pub(super) fn checked(
        app: &App,
        workers: &Workers,
        caller: &Caller,
        wanted: ClaimWish,
    ) -> Result<Self, Problem> {
        let ClaimWish { node: drawn, drives, most, limit, wait_ms, looks } = wanted;
        if limit > wire::MOST || drives.len() > most || wait_ms > wire::MOST_WAIT_MS {
            return Err(Problem::validation(format!(
                "a claim has a `limit` of at most {}, at most {most} workflows or queues, and a `waitMs` of at most {}",
                wire::MOST,
                wire::MOST_WAIT_MS
            )));
        }
        drives.iter().try_for_each(|drives| no_definition_version(drives.workflow_version.as_str()))?;
        let workspace = caller.workspace;
        let share = (wait_ms > 0).then(|| app.bounds.wait(workspace)).transpose()?;
        let served = drives.iter().map(|drives| {
            let (workflow, version) = (drives.workflow.as_str(), drives.workflow_version.as_str());
            title(workflow, version)
        });
        workers.roster.serves(app, workspace, drawn, served);
        // A claim with limit 0 takes nothing and must not be called before others.
        let workflows = if limit == 0 && !looks { Vec::new() } else { drives };
        let node = node::of(workspace, drawn);
        Ok(Self { workspace, node, workflows, wait_ms, looks, drawn, _share: share })
    }

    /// Claims at once, or waits until something is due. The result may be empty.
    pub(super) async fn claim<T: Default>(
        &self,
        app: &Arc<App>,
        workers: &Arc<Workers>,
        take: impl Fn() -> BoxFuture<'static, Result<ClaimTried<T>>>,
    ) -> Result<T, Refusal> {
        let claimed = Waiting::claim(app, workers, self, take).await;
        claimed.map_err(|error| roster::own(error, self.node, self.drawn).into())
    }

    /// Waits until something is due, and claims nothing. Gives the time at which the earliest of it is due.
    pub(super) async fn look(&self, app: &Arc<App>, workers: &Arc<Workers>) -> Result<Option<Time>, Refusal> {
        self.claim(app, workers, || {
            let (app, workflows) = (app.clone(), self.workflows.clone());
            async move {
                let dues = app.store.dues(workflows).await?;
                let next_due = dues.into_iter().flatten().min();
                let is_empty = next_due.is_none_or(|due| due > app.clock.now());
                Ok(ClaimTried { is_empty, more: false, next_due, found: next_due })
            }
            .boxed()
        })
        .await
    }
}
