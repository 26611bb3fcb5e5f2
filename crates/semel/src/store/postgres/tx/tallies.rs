//! Numbers of a workspace, in PostgreSQL.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, WorkspaceId};
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::list::Index;
use crate::store::postgres::binds::{Binds, Bound};
use crate::store::postgres::rows::{bigint, clock, column, name, time};
use crate::store::tx::{CountScan, DueScan, LATE_MS, TallyRows, due_version};
use crate::store::{DueVersion, OpenVersion};

/// The statement that counts a stretch. States are written out: only then is their partial index known to serve.
pub(crate) fn count_statement(scan: &CountScan<'_>) -> (String, Binds) {
    let mut binds = Binds::default();
    let mut add = |value| binds.add(value);
    let (workspace, since) = (add(Bound::Id(scan.workspace.0)), add(Bound::Big(scan.since.0)));
    let condition = match scan.index {
        Index::Workspace => String::new(),
        Index::Workflow(workflow) => format!("AND r.workflow = {}", add(Bound::Text(workflow.to_string()))),
        Index::Status(status) => format!("AND r.status = {}", status.code()),
        Index::Attention(kind) => {
            format!("AND r.attention IS NOT NULL AND r.attention = {}", add(Bound::Small(kind.code())))
        }
        Index::Parent(run) => format!("AND r.parent = {}", add(Bound::Id(run.0))),
        Index::Lineage(run) => format!("AND r.lineage <> r.id AND r.lineage = {}", add(Bound::Id(run.0))),
    };
    let workflow = scan.workflow.map(|name| format!("r.workflow = {}", add(Bound::Text(name.to_string()))));
    let status = scan.status.map(|status| format!("r.status = {}", add(Bound::Small(status.code()))));
    let filters: Vec<_> = workflow.into_iter().chain(status).collect();
    let wanted = if filters.is_empty() { "true".to_owned() } else { filters.join(" AND ") };
    let rows = add(Bound::Big(bigint(scan.rows)));
    let text = format!(
        "SELECT count(*) FILTER (WHERE r.wanted), count(*) FROM (SELECT {wanted} AS wanted FROM runs r \
         WHERE r.workspace = {workspace} AND r.created >= {since} {condition} ORDER BY r.created DESC, r.num DESC \
         LIMIT {rows}) r"
    );
    (text, binds)
}

const NOW: &str = concat!("SELECT ", clock!());

impl TallyRows for PgStoreTx<'_> {
    async fn count_runs(&mut self, scan: &CountScan<'_>) -> Result<(u64, usize)> {
        let (text, binds) = count_statement(scan);
        let row = self.row(&text, &binds.params()).await?.expect("a count is one row");
        Ok((column::<i64>(&row, 0)? as u64, column::<i64>(&row, 1)? as usize))
    }

    async fn due_versions(&mut self, scan: &DueScan<'_>) -> Result<Vec<DueVersion>> {
        let now = match self.now {
            Some(now) => now.0,
            None => column(&self.row(NOW, &[]).await?.expect("the time is one row"), 0)?,
        };
        let (late, most) = (now.saturating_sub(LATE_MS), bigint(scan.cap).saturating_add(1));
        let workflow = scan.workflow.map(Name::as_str);
        let params: Params<'_> = &[&scan.workspace.0, &bigint(scan.versions), &now, &late, &most, &workflow];
        let of = |row: &Row| {
            let counts = (column::<i64>(row, 2)? as u64, column::<i64>(row, 3)? as u64);
            let oldest = time(row, 4)?.map(|oldest| oldest.0);
            Ok(due_version((name(row, 0)?, name(row, 1)?), (counts.0, counts.1, oldest), scan.cap))
        };
        self.rows(include_str!("../sql/due_versions.sql"), params).await?.iter().map(of).collect()
    }

    async fn open_versions(
        &mut self,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
    ) -> Result<Vec<OpenVersion>> {
        let open = format!(
            "SELECT o.workflow, o.workflow_version, count(*) FROM (SELECT r.workflow, r.workflow_version FROM runs r \
             WHERE r.workspace = $1 AND r.status = {} AND r.status <> 4 ORDER BY r.created, r.num LIMIT $2) o \
             GROUP BY 1, 2 ORDER BY 1, 2",
            status.code()
        );
        let of = |row: &Row| {
            let count = column::<i64>(row, 2)? as u64;
            Ok(OpenVersion { workflow: name(row, 0)?, workflow_version: name(row, 1)?, status, count })
        };
        self.rows(&open, &[&workspace.0, &bigint(cap)]).await?.iter().map(of).collect()
    }

    async fn leases(&mut self, limit: usize) -> Result<Vec<(NodeId, Option<Time>)>> {
        let leases = "SELECT id, lease FROM nodes ORDER BY id LIMIT $1";
        let of = |row: &Row| Ok((NodeId(column(row, 0)?), time(row, 1)?));
        self.rows(leases, &[&bigint(limit)]).await?.iter().map(of).collect()
    }

    async fn held_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<Vec<(NodeId, u64)>> {
        let held = "SELECT o.node, count(*) FROM (SELECT r.node FROM runs r WHERE r.workspace = $1 AND r.status = 1 \
             ORDER BY r.created, r.num LIMIT $2) o WHERE o.node IS NOT NULL GROUP BY 1 ORDER BY 1";
        let of = |row: &Row| Ok((NodeId(column(row, 0)?), column::<i64>(row, 1)? as u64));
        self.rows(held, &[&workspace.0, &bigint(cap)]).await?.iter().map(of).collect()
    }
}
