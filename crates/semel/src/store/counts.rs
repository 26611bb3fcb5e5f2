//! Numbers for gauges and dashboards. Each is counted up to a bound, by an index: a store with a million open runs answers
//! as fast as one with as many as the bound.

use serde::{Deserialize, Serialize};

use crate::rules::path::Name;

/// Bound of [`Engine::counts`](crate::Engine::counts) and [`Client::counts`](crate::Client::counts).
pub(crate) const CAP: u64 = 10_000;

/// The open runs of one workspace, counted up to a bound. See [`Store::counts_in`](super::Store::counts_in).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunCounts {
    /// Workflows that have open runs, the one with most of them first.
    pub workflows: Vec<WorkflowCounts>,
    /// Paused runs that wait for a person to decide about a step in doubt. At most 1,000 paused runs are looked at.
    pub in_doubt: u64,
    /// Whether a number reached the bound, so that there may be more runs than the numbers say.
    pub capped: bool,
}

impl RunCounts {
    /// Runs that have not ended, of all workflows. Paused runs are included.
    pub fn open(&self) -> u64 {
        self.workflows.iter().map(|workflow| workflow.open).sum()
    }

    /// Runs that are paused, of all workflows.
    pub fn paused(&self) -> u64 {
        self.workflows.iter().map(|workflow| workflow.paused).sum()
    }
}

/// Numbers of a whole store now, over all workspaces. See [`Store::counts`](super::Store::counts).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Workflows that have open runs, the one with most of them first.
    pub workflows: Vec<WorkflowCounts>,
    /// Paused runs that wait for a person to decide about a step in doubt.
    pub in_doubt: u64,
    /// Runs that are due and not claimed by any node.
    pub backlog: u64,
    /// Nodes whose lease lasts: engines and remote workers.
    pub nodes: u64,
    /// Whether a number reached the bound, so that there may be more than the numbers say.
    pub capped: bool,
}

/// The open runs of one workflow, in all its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct WorkflowCounts {
    /// Name of the workflow.
    pub workflow: Name,
    /// Runs that have not ended, paused ones included.
    pub open: u64,
    /// Runs among them that are paused.
    pub paused: u64,
}

impl Counts {
    /// Runs that have not ended, of all workflows.
    pub fn open(&self) -> u64 {
        self.workflows.iter().map(|workflow| workflow.open).sum()
    }

    /// Runs that are paused, of all workflows.
    pub fn paused(&self) -> u64 {
        self.workflows.iter().map(|workflow| workflow.paused).sum()
    }
}
