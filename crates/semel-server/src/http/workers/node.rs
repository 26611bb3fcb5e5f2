//! Nodes of workers. A worker draws an id; the node is derived from it and from the workspace of the credential. So
//! whatever id a worker gives, it can reach no node but those of its own workspace: not that of another tenant, and not
//! that of an engine in this process, although ledgers show their ids. A foreign node is an unknown one.

use semel::error::Result;
use semel::id::{NodeId, WorkspaceId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::roster::Roster;
use crate::access::Caller;
use crate::app::App;

/// Which worker writes to a run: only the node that has claimed it may.
#[derive(Clone, Debug)]
pub(super) enum By {
    /// The worker names its node.
    Node(NodeId),
    /// It names none: any node that was registered with this credential.
    Credential(String),
}

impl By {
    /// The worker that makes a call, with the id that it has drawn if it tells.
    pub(super) fn of(caller: &Caller, drawn: Option<NodeId>) -> Self {
        match drawn {
            Some(drawn) => Self::Node(of(caller.workspace, drawn)),
            None => Self::Credential(caller.title()),
        }
    }

    /// Whether this is the worker of a node.
    pub(super) async fn speaks_for(
        &self,
        app: &App,
        roster: &Roster,
        workspace: WorkspaceId,
        node: NodeId,
    ) -> Result<bool> {
        Ok(match self {
            Self::Node(named) => *named == node,
            Self::Credential(credential) => {
                roster.credential_of(app, (workspace, node)).await?.as_ref() == Some(credential)
            }
        })
    }
}

/// The node of a worker.
pub(super) fn of(workspace: WorkspaceId, drawn: NodeId) -> NodeId {
    let mut hash = Sha256::new();
    hash.update(b"semel/node/v1");
    hash.update(workspace.0.as_bytes());
    hash.update(drawn.0.as_bytes());
    let full: [u8; 32] = hash.finalize().into();
    NodeId(Uuid::new_v8(full[..16].try_into().expect("16 of 32 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_reaches_the_node_of_another_workspace() {
        let (drawn, mine, theirs) =
            (NodeId(Uuid::from_u128(1)), WorkspaceId::DEFAULT, WorkspaceId(Uuid::from_u128(7)));
        assert_eq!(of(mine, drawn), of(mine, drawn));
        assert_ne!(of(mine, drawn), of(theirs, drawn));
        assert_ne!(of(mine, of(mine, drawn)), of(mine, drawn), "nor by the id that ledgers show");
        assert_ne!(of(mine, drawn), drawn);
    }
}
