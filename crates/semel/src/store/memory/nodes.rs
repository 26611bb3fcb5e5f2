//! Nodes, their leases, and the runs that they drive.

use super::{MemoryTx, NodeRow};
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::store::tx::{DeadNode, Driven, NodeRows, SetFree};

impl NodeRows for MemoryTx<'_> {
    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        Ok(self.tables.nodes.get(&node).and_then(|node| node.lease))
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        let node = self.write().nodes.entry(node).or_default();
        *node = NodeRow { lease: until, departed: node.departed && until.is_none() };
        Ok(())
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        self.write().nodes.insert(node, NodeRow { lease: None, departed: true });
        Ok(())
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        let dead = |node: &NodeRow| node.lease.is_none_or(|until| until <= self.now);
        let dead = self.tables.nodes.iter().filter(|(_, node)| dead(node));
        let shown = |(id, node): (&NodeId, &NodeRow)| DeadNode {
            id: *id,
            is_new: node.lease.is_some(),
            departed: node.departed,
        };
        Ok(dead.map(shown).collect())
    }

    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        let driven = |node: &NodeId| self.tables.driven.range((*node, 0)..=(*node, i64::MAX));
        let mut found: Vec<_> = dead.iter().flat_map(driven).copied().collect();
        found.sort_unstable_by_key(|(_, num)| *num);
        let shown = |(node, num)| Driven { num, node, stalls: self.tables.runs[&num].state.stalls };
        Ok(found.into_iter().take(limit).map(shown).collect())
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        let held = self.tables.driven.range((node, 0)..=(node, i64::MAX));
        Ok(held.map(|(_, num)| self.tables.runs[num].state.stalls).collect())
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        for free in runs {
            self.write().update(free.num, |run| {
                run.state.node = None;
                run.state.due = Some(free.due);
                run.state.stalls = free.stalls;
            });
        }
        Ok(())
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.write().nodes.remove(&node);
        Ok(())
    }
}
