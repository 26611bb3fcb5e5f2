//! Nodes, their leases, and the runs that they drive.

use tokio_postgres::Row;

use super::PgStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::store::postgres::rows::{bigint, column, time};
use crate::store::tx::{DeadNode, Driven, NodeRows, SetFree, TxTime};

impl NodeRows for PgStoreTx<'_> {
    // KEY SHARE: the sweep cannot take the node for dead while runs are given to it, yet the node may renew its lease
    // and claim in several transactions at once.
    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        let row = self.row("SELECT lease FROM nodes WHERE id = $1 FOR KEY SHARE", &[&node.0]).await?;
        Ok(row.map(|row| time(&row, 0)).transpose()?.flatten())
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        let upsert = "INSERT INTO nodes (id, lease) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET lease = $2, departed = nodes.departed AND $2 IS NULL";
        self.write(upsert, &[&node.0, &until.map(|until| until.0)]).await?;
        Ok(())
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        let upsert = "INSERT INTO nodes (id, lease, departed) VALUES ($1, NULL, true) \
             ON CONFLICT (id) DO UPDATE SET lease = NULL, departed = true";
        self.write(upsert, &[&node.0]).await?;
        Ok(())
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        let dead = "SELECT id, lease IS NOT NULL, departed FROM nodes WHERE lease IS NULL OR lease <= $1 ORDER BY id \
             FOR UPDATE SKIP LOCKED";
        let rows = self.rows(dead, &[&self.now().0]).await?;
        let read = |row: &Row| {
            Ok(DeadNode { id: NodeId(column(row, 0)?), is_new: column(row, 1)?, departed: column(row, 2)? })
        };
        rows.iter().map(read).collect()
    }

    // Waits for those that are locked: the nodes are forgotten afterwards, and none of their runs must be left behind.
    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let driven =
            "SELECT num, node, stalls FROM runs WHERE node = ANY($1) ORDER BY num LIMIT $2 FOR NO KEY UPDATE";
        let dead: Vec<_> = dead.iter().map(|node| node.0).collect();
        let read = |row: &Row| {
            let stalls = column::<i32>(row, 2)? as u32;
            Ok(Driven { num: column(row, 0)?, node: NodeId(column(row, 1)?), stalls })
        };
        self.rows(driven, &[&dead, &bigint(limit)]).await?.iter().map(read).collect()
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        let rows = self.rows("SELECT stalls FROM runs WHERE node = $1", &[&node.0]).await?;
        rows.iter().map(|row| Ok(column::<i32>(row, 0)? as u32)).collect()
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let update = "UPDATE runs r SET node = NULL, due = f.due, stalls = f.stalls \
             FROM unnest($1::bigint[], $2::bigint[], $3::integer[]) AS f (num, due, stalls) WHERE r.num = f.num";
        let nums: Vec<_> = runs.iter().map(|run| run.num).collect();
        let dues: Vec<_> = runs.iter().map(|run| run.due.0).collect();
        let stalls: Vec<_> = runs.iter().map(|run| run.stalls as i32).collect();
        self.write(update, &[&nums, &dues, &stalls]).await?;
        Ok(())
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.write("DELETE FROM nodes WHERE id = $1", &[&node.0]).await?;
        Ok(())
    }
}
