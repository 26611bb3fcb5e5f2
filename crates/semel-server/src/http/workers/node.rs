//! Nodes of workers. A worker generates an id; the node is derived from it and from the workspace of the credential.
//! Whatever id a worker sends, it can only reach nodes of its own workspace: not those of another tenant, and not
//! those of an engine in this process, although ledgers show their ids. The node of another workspace is answered as an unknown one.

use semel::error::Result;
use semel::id::{NodeId, WorkspaceId};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::roster::Roster;
use crate::access::Caller;
use crate::app::App;

/// The worker that writes to a run: only the node that has claimed it may.
#[derive(Clone, Debug)]
pub(super) enum WriteBy {
    /// The worker names its node.
    Node(NodeId),
    /// The worker names no node: any node that was registered with this credential counts.
    Credential(String),
}

impl WriteBy {
    /// The worker that makes a call, with the id that it has generated, if given.
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

/// Derives the node of a worker.
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
    fn the_node_of_another_workspace_is_not_reached() {
        let (drawn, mine, theirs) =
            (NodeId(Uuid::from_u128(1)), WorkspaceId::DEFAULT, WorkspaceId(Uuid::from_u128(7)));
        assert_eq!(of(mine, drawn), of(mine, drawn));
        assert_ne!(of(mine, drawn), of(theirs, drawn));
        assert_ne!(of(mine, of(mine, drawn)), of(mine, drawn), "nor by the id that ledgers show");
        assert_ne!(of(mine, drawn), drawn);
    }
}
