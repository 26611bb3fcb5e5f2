//! Leases, and what the sweep makes due or forgets.

use super::rows::{bigint, column, run_of, select_run};
use super::tx::{Params, PgTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::rules::finish::Purge;
use crate::rules::run::Run;
use crate::store::tx::Tx;

impl PgTx<'_> {
    /// KEY SHARE: the sweep cannot take the node for dead while runs are given to it, yet the node may renew its lease
    /// and claim in several transactions at once.
    pub(super) async fn lock_lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        let row = self.row("SELECT lease FROM nodes WHERE id = $1 FOR KEY SHARE", &[&node.0]).await?;
        Ok(row.map(|row| super::rows::time(&row, 0)).transpose()?.flatten())
    }

    pub(super) async fn write_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        let upsert =
            "INSERT INTO nodes (id, lease) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET lease = $2";
        self.write(upsert, &[&node.0, &until.map(|until| until.0)]).await?;
        Ok(())
    }

    pub(super) async fn lock_dead_nodes(&mut self) -> Result<Vec<NodeId>> {
        let dead =
            "SELECT id FROM nodes WHERE lease IS NULL OR lease <= $1 ORDER BY id FOR UPDATE SKIP LOCKED";
        let rows = self.rows(dead, &[&self.now().0]).await?;
        rows.iter().map(|row| column(row, 0).map(NodeId)).collect()
    }

    /// Waits for those that are locked: the nodes are forgotten afterwards, and none of their runs must be left behind.
    pub(super) async fn orphan_runs(&mut self, dead: &[NodeId], limit: usize) -> Result<usize> {
        let update = "UPDATE runs SET node = NULL, due = $2 WHERE num IN \
             (SELECT num FROM runs WHERE node = ANY($1) ORDER BY num LIMIT $3 FOR NO KEY UPDATE)";
        let dead: Vec<_> = dead.iter().map(|node| node.0).collect();
        Ok(self.write(update, &[&dead, &self.now().0, &bigint(limit)]).await? as usize)
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
