//! Nodes, their leases, and what the sweep takes out of their hands.

use rusqlite::{Connection, Row, params};

use super::tx::{RUN, SqliteTx, read_run};
use super::values::Id;
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::rules::run::Run;
use crate::store::tx::{DeadNode, Driven, SetFree};
use crate::store::verbs::is_alive;

/// How long the nodes of remote workers are believed in, at the least, after the file was opened: while it was closed they
/// could not renew their leases. Also how long ago such a lease may have ended to be given this: one that ended before the
/// file was closed was swept within a second.
const GRACE_MS: i64 = 10_000;

/// Ends the leases of the process that had the file before, and keeps those of remote workers. The former keep a time that
/// has passed, instead of none: the sweep finds these nodes dead for the first time.
pub(super) fn reopen(conn: &Connection, now: Time) -> rusqlite::Result<()> {
    conn.execute("UPDATE nodes SET lease = 0 WHERE lease IS NOT NULL AND NOT remote", [])?;
    let kept = "UPDATE nodes SET lease = max(lease, ?1 + ?2) WHERE remote AND lease > ?1 - ?2";
    conn.execute(kept, [now.0, GRACE_MS]).map(drop)
}

impl SqliteTx {
    /// Until when a node is believed to live.
    pub(super) fn lease_of(&mut self, node: NodeId) -> Result<Option<Time>> {
        if let Some((_, lease)) = self.lease.filter(|(known, _)| *known == node) {
            return Ok(lease);
        }
        let lease =
            self.first("SELECT lease FROM nodes WHERE id = ?", [node], |row| row.get::<_, Option<i64>>(0))?;
        let lease = lease.flatten().map(Time);
        self.lease = Some((node, lease));
        Ok(lease)
    }

    /// Whether nothing is in the way of a run that is to be this node's, if it is to be anybody's: a dead node's runs are
    /// given away once, and one that it took now would stay its for ever.
    pub(super) fn is_free_to(&mut self, node: Option<NodeId>) -> Result<bool> {
        match node {
            Some(node) => Ok(is_alive(self.lease_of(node)?, self.now)),
            None => Ok(true),
        }
    }

    pub(super) fn write_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        self.lease = None;
        let sql = "INSERT INTO nodes (id, lease) VALUES (?1, ?2) \
             ON CONFLICT (id) DO UPDATE SET lease = ?2, departed = departed AND ?2 IS NULL";
        self.write(sql, params![node, until]).map(drop)
    }

    pub(super) fn write_remote_lease(&mut self, node: NodeId, until: Time) -> Result<()> {
        self.lease = None;
        let sql = "INSERT INTO nodes (id, lease, remote) VALUES (?1, ?2, 1) \
             ON CONFLICT (id) DO UPDATE SET lease = ?2, remote = 1, departed = 0";
        self.write(sql, params![node, until]).map(drop)
    }

    pub(super) fn end_lease(&mut self, node: NodeId) -> Result<()> {
        self.lease = None;
        let sql = "INSERT INTO nodes (id, lease, departed) VALUES (?1, NULL, 1) \
             ON CONFLICT (id) DO UPDATE SET lease = NULL, departed = 1";
        self.write(sql, [node]).map(drop)
    }

    pub(super) fn read_dead_nodes(&self) -> Result<Vec<DeadNode>> {
        let sql =
            "SELECT id, lease IS NOT NULL, departed FROM nodes WHERE lease IS NULL OR lease <= ? ORDER BY id";
        let read = |row: &Row<'_>| {
            Ok(DeadNode { id: NodeId(row.get::<_, Id>(0)?.0), is_new: row.get(1)?, departed: row.get(2)? })
        };
        self.all(sql, [self.now], read)
    }

    /// One pass through the driven runs, however many nodes have died: there is no index by node. Which these are is in their
    /// table, and there is no other writer.
    pub(super) fn driven_by_dead(&self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let sql = "SELECT num, node, stalls FROM runs INDEXED BY runs_driven JOIN heads USING (num) \
             WHERE node IS NOT NULL AND node IN (SELECT id FROM nodes WHERE lease IS NULL) ORDER BY num LIMIT ?";
        let read = |row: &Row<'_>| {
            Ok(Driven { num: row.get(0)?, node: NodeId(row.get::<_, Id>(1)?.0), stalls: row.get(2)? })
        };
        self.all(sql, [limit as i64], read)
    }

    pub(super) fn stalls_held_by(&self, node: NodeId) -> Result<Vec<u32>> {
        let sql = "SELECT stalls FROM runs INDEXED BY runs_driven JOIN heads USING (num) \
             WHERE node IS NOT NULL AND node = ?";
        self.all(sql, [node], |row| row.get(0))
    }

    pub(super) fn write_free(&self, runs: &[SetFree]) -> Result<()> {
        for SetFree { num, due, stalls } in runs {
            self.write("UPDATE runs SET due = ?2, node = NULL WHERE num = ?1", params![num, due])?;
            self.write("UPDATE heads SET stalls = ?2 WHERE num = ?1", params![num, stalls])?;
        }
        Ok(())
    }

    /// Status 0 is PENDING, 1 RUNNING, 2 WAITING. Said as in the index.
    pub(super) fn read_overdue(&self, limit: usize) -> Result<Vec<Run>> {
        let sql = format!(
            "SELECT {RUN} FROM runs INDEXED BY runs_deadline JOIN heads USING (num) \
             WHERE deadline IS NOT NULL AND status < 3 AND deadline <= ? ORDER BY deadline, num LIMIT ?"
        );
        self.all(&sql, params![self.now, limit as i64], read_run)
    }

    pub(super) fn forget_node(&mut self, node: NodeId) -> Result<()> {
        self.lease = None;
        self.write("DELETE FROM nodes WHERE id = ?", [node]).map(drop)
    }
}
