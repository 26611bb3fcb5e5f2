//! Nodes, their leases, and the runs that they drive.

use rusqlite::{Connection, Row, params};

use super::SqliteStoreTx;
use crate::clock::Time;
use crate::error::Result;
use crate::id::NodeId;
use crate::sabotage::{self, Bug};
use crate::store::sqlite::values::Id;
use crate::store::tx::{DeadNode, Driven, NodeRows, SetFree};
use crate::store::verbs::is_alive;

/// How long the nodes of remote workers are believed in, at the least, after the file was opened: while it was closed they
/// could not renew their leases. Also how long ago such a lease may have ended to be given this: one that ended before the
/// file was closed was swept within a second.
const GRACE_MS: i64 = 10_000;

/// Ends the leases of the process that had the file before, and keeps those of remote workers. The former keep a time that
/// has passed, instead of none: the sweep finds these nodes dead for the first time.
pub(in crate::store::sqlite) fn reopen(conn: &Connection, now: Time) -> rusqlite::Result<()> {
    if sabotage::commits(Bug::LeasesClearedOnOpen) {
        conn.execute("UPDATE nodes SET remote = 0", [])?;
    }
    conn.execute("UPDATE nodes SET lease = 0 WHERE lease IS NOT NULL AND NOT remote", [])?;
    let kept = "UPDATE nodes SET lease = max(lease, ?1 + ?2) WHERE remote AND lease > ?1 - ?2";
    conn.execute(kept, [now.0, GRACE_MS]).map(drop)
}

impl NodeRows for SqliteStoreTx {
    async fn lease(&mut self, node: NodeId) -> Result<Option<Time>> {
        self.lease_of(node)
    }

    async fn put_lease(&mut self, node: NodeId, until: Option<Time>) -> Result<()> {
        self.lease = None;
        self.write(include_str!("../sql/put_lease.sql"), params![node, until]).map(drop)
    }

    async fn enroll(&mut self, node: NodeId, until: Time) -> Result<()> {
        self.lease = None;
        self.write(include_str!("../sql/enroll.sql"), params![node, until]).map(drop)
    }

    async fn depart(&mut self, node: NodeId) -> Result<()> {
        self.lease = None;
        self.write(include_str!("../sql/depart.sql"), [node]).map(drop)
    }

    async fn dead_nodes(&mut self) -> Result<Vec<DeadNode>> {
        let sql =
            "SELECT id, lease IS NOT NULL, departed FROM nodes WHERE lease IS NULL OR lease <= ? ORDER BY id";
        let read = |row: &Row<'_>| {
            Ok(DeadNode { id: NodeId(row.get::<_, Id>(0)?.0), is_new: row.get(1)?, departed: row.get(2)? })
        };
        self.all(sql, [self.now], read)
    }

    // Which nodes are dead is in their table, and there is no other writer.
    async fn driven(&mut self, dead: &[NodeId], limit: usize) -> Result<Vec<Driven>> {
        if dead.is_empty() {
            return Ok(Vec::new());
        }
        let read = |row: &Row<'_>| {
            Ok(Driven { num: row.get(0)?, node: NodeId(row.get::<_, Id>(1)?.0), stalls: row.get(2)? })
        };
        self.all(include_str!("../sql/driven.sql"), [limit as i64], read)
    }

    async fn held_by(&mut self, node: NodeId) -> Result<Vec<u32>> {
        self.all(include_str!("../sql/held_by.sql"), [node], |row| row.get(0))
    }

    async fn set_free(&mut self, runs: &[SetFree]) -> Result<()> {
        for SetFree { num, due, stalls } in runs {
            self.write("UPDATE runs SET due = ?2, node = NULL WHERE num = ?1", params![num, due])?;
            self.write("UPDATE heads SET stalls = ?2 WHERE num = ?1", params![num, stalls])?;
        }
        Ok(())
    }

    async fn delete_node(&mut self, node: NodeId) -> Result<()> {
        self.lease = None;
        self.write("DELETE FROM nodes WHERE id = ?", [node]).map(drop)
    }
}

impl SqliteStoreTx {
    /// Until when a node is believed to live.
    pub(in crate::store::sqlite) fn lease_of(&mut self, node: NodeId) -> Result<Option<Time>> {
        if let Some((_, lease)) = self.lease.filter(|(known, _)| *known == node) {
            return Ok(lease);
        }
        let lease =
            self.first("SELECT lease FROM nodes WHERE id = ?", [node], |row| row.get::<_, Option<i64>>(0))?;
        let lease = lease.flatten().map(Time);
        self.lease = Some((node, lease));
        Ok(lease)
    }

    /// Whether a run may be given to this node: it has to be alive. The runs of a dead node are freed once, and a run that it
    /// took afterwards would stay its own for ever. True without a node.
    pub(in crate::store::sqlite) fn is_free_to(&mut self, node: Option<NodeId>) -> Result<bool> {
        match node {
            Some(node) => Ok(is_alive(self.lease_of(node)?, self.now)),
            None => Ok(true),
        }
    }
}
