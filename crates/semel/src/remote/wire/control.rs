//! A control that is asked for over the wire.

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::control::{Action, Control};
use crate::rules::key::CallId;

/// A control, and on whose behalf it is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlCall {
    /// The run.
    pub run: RunId,
    /// What to do.
    pub action: Action,
    /// Who asks; recorded in the ledger.
    pub by: String,
    /// The id under which it may be repeated.
    #[serde(default)]
    pub id: Option<CallId>,
    /// Only if the run still has this version.
    #[serde(default)]
    pub expected: Option<u64>,
    /// The ids that the worker has registered under, as it has drawn them. A worker may pause a run that one of them
    /// holds, without the permission to control runs. Empty by default.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
}

impl ControlCall {
    pub(in crate::remote) fn of(control: Control, nodes: Vec<NodeId>) -> Self {
        let Control { run, action, by, id, expected, .. } = control;
        Self { run, action, by, id, expected, nodes }
    }

    /// The control, in the workspace of the caller.
    pub fn control(self, workspace: WorkspaceId) -> Control {
        let Self { run, action, by, id, expected, nodes: _ } = self;
        Control { workspace, run, action, by, id, expected }
    }
}
