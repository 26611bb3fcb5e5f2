//! An operator's action on a run, as it travels.

use serde::{Deserialize, Serialize};

use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::control::{Control, ControlAction};
use crate::rules::key::CallId;
/// An action on a run, and who asks for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlCall {
    /// The run to act on.
    pub run: RunId,
    /// The action to take.
    pub action: ControlAction,
    /// Who asks; recorded in the ledger.
    pub by: String,
    /// Id under which the call may be repeated. Absent: a repeated call is a new one.
    #[serde(default)]
    pub id: Option<CallId>,
    /// If given, the action is refused unless the run has this version.
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
