//! Counting in PostgreSQL: every statement reads a bounded stretch of an index.

use super::rows::{bigint, clock, column, name, status_of};
use super::tx::{Params, PgStoreTx};
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::store::tx::{CountRows, OpenRuns};

const DUE: &str = concat!(
    "SELECT count(*) FROM (SELECT 1 FROM runs WHERE due IS NOT NULL AND due <= coalesce($1::bigint, ",
    clock!(),
    ") LIMIT $2) r"
);
const NODES: &str = concat!(
    "SELECT count(*) FROM (SELECT 1 FROM nodes WHERE lease > coalesce($1::bigint, ",
    clock!(),
    ") AND NOT departed LIMIT $2) n"
);
/// The open runs of all workspaces, and of the workspace `$2`.
const OPEN_OF_ALL: &str = concat!(include_str!("sql/workspaces.sql"), include_str!("sql/open_runs.sql"));
const OPEN_OF_ONE: &str =
    concat!("WITH seen (workspace) AS (VALUES ($2::uuid))\n", include_str!("sql/open_runs.sql"));
const OPEN_IN: &str = include_str!("sql/open_in.sql");

impl CountRows for PgStoreTx<'_> {
    async fn open_runs(&mut self, workspace: Option<WorkspaceId>, cap: usize) -> Result<OpenRuns> {
        self.count_open(workspace, cap).await
    }

    async fn open_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<u64> {
        self.count_open_in(workspace, cap).await
    }

    async fn in_doubt(&mut self, paused: &[i64]) -> Result<u64> {
        self.count_in_doubt(paused).await
    }

    async fn due_now(&mut self, cap: usize) -> Result<u64> {
        self.count_due(cap).await
    }

    async fn live_nodes(&mut self, cap: usize) -> Result<u64> {
        self.count_nodes(cap).await
    }
}

impl PgStoreTx<'_> {
    async fn count_open(&self, workspace: Option<WorkspaceId>, cap: usize) -> Result<OpenRuns> {
        let rows = match workspace {
            Some(workspace) => self.rows(OPEN_OF_ONE, &[&bigint(cap), &workspace.0]).await?,
            None => self.rows(OPEN_OF_ALL, &[&bigint(cap)]).await?,
        };
        let mut open = OpenRuns::default();
        for row in &rows {
            open.counts.push((name(row, 0)?, status_of(row, 1)?, column::<i64>(row, 2)? as u64));
            open.paused.extend(column::<Option<Vec<i64>>>(row, 3)?.into_iter().flatten());
        }
        Ok(open)
    }

    async fn count_in_doubt(&self, paused: &[i64]) -> Result<u64> {
        if paused.is_empty() {
            return Ok(0);
        }
        self.count(include_str!("sql/in_doubt.sql"), &[&paused]).await
    }

    async fn count_due(&self, cap: usize) -> Result<u64> {
        self.count(DUE, &[&self.now.map(|now| now.0), &bigint(cap)]).await
    }

    async fn count_nodes(&self, cap: usize) -> Result<u64> {
        self.count(NODES, &[&self.now.map(|now| now.0), &bigint(cap)]).await
    }

    async fn count_open_in(&self, workspace: WorkspaceId, cap: usize) -> Result<u64> {
        Ok(self.count(OPEN_IN, &[&workspace.0, &bigint(cap)]).await?.min(cap as u64))
    }

    async fn count(&self, sql: &str, params: Params<'_>) -> Result<u64> {
        let row = self.row(sql, params).await?.expect("a count is one row");
        Ok(column::<i64>(&row, 0)? as u64)
    }
}
