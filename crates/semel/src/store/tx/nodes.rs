//! Nodes, their leases, and the runs that they drive.

use std::future::Future;

use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;

/// A node whose lease has ended, or that has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadNode {
    pub(crate) id: NodeId,
    /// Whether it is found dead for the first time: all of its runs are still its.
    pub(crate) is_new: bool,
    /// Whether it has left in good order.
    pub(crate) departed: bool,
}

/// A run in the hands of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Driven {
    pub(crate) num: i64,
    pub(crate) node: NodeId,
    pub(crate) stalls: u32,
}

/// A run that is due from a time on, and in no node's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetFree {
    pub(crate) num: i64,
    pub(crate) due: Time,
    pub(crate) stalls: u32,
}

/// Rows of nodes, and of the runs that they drive, in one transaction.
pub(crate) trait NodeRows: Send {
    /// Until when a node's lease lasts; none if it is unknown or given up for dead. Locked against its end.
    fn lease(&mut self, node: NodeId) -> impl Future<Output = Result<Option<Time>>> + Send;
    /// Sets a node's lease; with none, gives the node up for dead.
    fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> impl Future<Output = Result<()>> + Send;
    /// Sets the lease of a node that is not of this process. Only a store of one process has to know.
    fn enroll(&mut self, node: NodeId, until: Time) -> impl Future<Output = Result<()>> + Send {
        self.put_lease(node, Some(until))
    }
    /// Ends the lease of a node that leaves in good order.
    fn depart(&mut self, node: NodeId) -> impl Future<Output = Result<()>> + Send;
    /// Nodes whose lease has ended, or that have left or are given up for dead, locked.
    fn dead_nodes(&mut self) -> impl Future<Output = Result<Vec<DeadNode>>> + Send;
    /// Up to `limit` runs in the hands of nodes that are given up for dead, the first by their numbers, locked.
    fn driven(&mut self, dead: &[NodeId], limit: usize) -> impl Future<Output = Result<Vec<Driven>>> + Send;
    /// The counts of deaths (`stalls`) of the runs in a node's hands.
    fn held_by(&mut self, node: NodeId) -> impl Future<Output = Result<Vec<u32>>> + Send;
    /// Takes runs that are locked out of all hands.
    fn set_free(&mut self, runs: &[SetFree]) -> impl Future<Output = Result<()>> + Send;
    /// Forgets a node.
    fn delete_node(&mut self, node: NodeId) -> impl Future<Output = Result<()>> + Send;
}
