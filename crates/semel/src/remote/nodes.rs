//! The ids of this worker: the one that it has drawn, and the one that the server has derived from it.
//!
//! The server derives its id from the credential's workspace and the drawn one, so that no worker can speak for the node of
//! another workspace. What comes from the server names nodes by its ids; an engine compares them with its own.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::id::NodeId;
use crate::rules::entry::Entry;
use crate::rules::run::Run;
use crate::store::Numbered;

#[derive(Debug, Default)]
pub(super) struct Nodes(RwLock<HashMap<NodeId, NodeId>>);

impl Nodes {
    /// The server knows us under this id.
    pub(super) fn learn(&self, servers: NodeId, own: NodeId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(servers, own);
    }

    /// The worker has released its lease under this id.
    pub(super) fn forget(&self, own: NodeId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|_, known| *known != own);
    }

    pub(super) fn own(&self, node: &mut NodeId) {
        if let Some(own) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(node) {
            *node = *own;
        }
    }

    /// The id under which the server knows a node of this worker; the same id for the nodes of others.
    pub(super) fn servers(&self, own: NodeId) -> NodeId {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(_, node)| **node == own).map_or(own, |(servers, _)| *servers)
    }

    /// The ids that this worker has registered under.
    pub(super) fn all(&self) -> Vec<NodeId> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().copied().collect()
    }

    pub(super) fn in_run(&self, run: &mut Run) {
        if let Some(node) = &mut run.state.node {
            self.own(node);
        }
    }

    pub(super) fn in_entries(&self, entries: &mut [Entry]) {
        for entry in entries {
            self.in_entry(entry);
        }
    }

    pub(super) fn in_ledger(&self, ledger: &mut [Numbered]) {
        for line in ledger {
            self.in_entry(&mut line.entry);
        }
    }

    fn in_entry(&self, entry: &mut Entry) {
        if let Entry::Claimed { node } = entry {
            self.own(node);
        }
    }
}
