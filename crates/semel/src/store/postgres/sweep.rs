//! Leases, and what the sweep makes due or forgets.

use tokio_postgres::Row;

use super::rows::{bigint, column, run_of, select_run};
use super::tx::{Params, PgTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::rules::finish::Purge;
use crate::rules::run::Run;
use crate::store::tx::{DeadNode, Driven, SetFree, Tx};

impl PgTx<'_> {
    /// KEY SHARE: the sweep cannot take the node for dead while runs are given to it, yet the node may renew its lease
    /// and claim in several transactions at once.
    pub(super) async fn lock_lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        let row = self.row("SELECT lease FROM nodes WHERE id = $1 FOR KEY SHARE", &[&node.0]).await?;
        Ok(row.map(|row| super::rows::time(&row, 0)).transpose()?.flatten())
    }

    pub(super) async fn write_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        let upsert = "INSERT INTO nodes (id, lease) VALUES ($1, $2) \
             ON CONFLICT (id) DO UPDATE SET lease = $2, departed = nodes.departed AND $2 IS NULL";
        self.write(upsert, &[&node.0, &until.map(|until| until.0)]).await?;
        Ok(())
    }

    pub(super) async fn end_lease(&mut self, node: NodeId) -> Result<()> {
        let upsert = "INSERT INTO nodes (id, lease, departed) VALUES ($1, NULL, true) \
             ON CONFLICT (id) DO UPDATE SET lease = NULL, departed = true";
        self.write(upsert, &[&node.0]).await?;
        Ok(())
    }

    pub(super) async fn lock_dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        let dead = "SELECT id, lease IS NOT NULL, departed FROM nodes WHERE lease IS NULL OR lease <= $1 ORDER BY id \
             FOR UPDATE SKIP LOCKED";
        let rows = self.rows(dead, &[&self.now().0]).await?;
        let read = |row: &Row| {
            Ok(DeadNode { id: NodeId(column(row, 0)?), is_new: column(row, 1)?, departed: column(row, 2)? })
        };
        rows.iter().map(read).collect()
    }

    /// Waits for those that are locked: the nodes are forgotten afterwards, and none of their runs must be left behind.
    pub(super) async fn lock_driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
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

    pub(super) async fn stalls_held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        let rows = self.rows("SELECT stalls FROM runs WHERE node = $1", &[&node.0]).await?;
        rows.iter().map(|row| Ok(column::<i32>(row, 0)? as u32)).collect()
    }

    pub(super) async fn write_free(&mut self, runs: &[SetFree]) -> Result<()> {
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

    pub(super) async fn lock_overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        let overdue = select_run!(
            "FROM runs r WHERE r.deadline IS NOT NULL AND r.status < 3 AND r.deadline <= $1 \
             ORDER BY r.deadline, r.num LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED"
        );
        self.rows(overdue, &[&self.now().0, &bigint(limit)]).await?.iter().map(run_of).collect()
    }

    pub(super) async fn lock_purgeable(&mut self, limit: usize) -> Result<Vec<Run>> {
        let purgeable = select_run!(
            "FROM runs r WHERE r.purge <= $1 ORDER BY r.purge, r.num LIMIT $2 FOR UPDATE SKIP LOCKED"
        );
        self.rows(purgeable, &[&self.now().0, &bigint(limit)]).await?.iter().map(run_of).collect()
    }

    /// Deletes up to `limit` rows of a run's history, and if that was all of it, does what else is to be forgotten; one
    /// round trip. How many rows there were.
    pub(super) async fn purge(&mut self, num: i64, what: Option<Purge>, limit: usize) -> Result<usize> {
        let (delete, next) = match what {
            Some(Purge::Run) => (true, None),
            Some(Purge::History(next)) => (false, Some(next.0)),
            Some(Purge::Keep) | None => (false, None),
        };
        let params: Params<'_> = &[&num, &bigint(limit), &what.is_some(), &delete, &next];
        let row = self.write_row(include_str!("purge.sql"), params).await?;
        row.map_or(Ok(0), |row| Ok(column::<i64>(&row, 0)? as usize))
    }

    /// Forgets old marks. Most writing transactions leave one, so there may be many more of them than of anything else
    /// that a sweep forgets, and the sweep's limit is not theirs.
    pub(super) async fn sweep_marks(&mut self) -> Result<()> {
        const MANY: i64 = 10_000;
        self.write(include_str!("marks.sql"), &[&MANY]).await?;
        Ok(())
    }
}
