//! Figures of workspaces, by minute and by hour.

use tokio_postgres::Row;

use super::{Params, PgStoreTx};
use crate::error::Result;
use crate::rules::stats::StatsSpan;
use crate::store::postgres::rows::{bigint, column};
use crate::store::tx::{StatsAt, StatsLook, StatsRow, StatsRows};

impl StatsRows for PgStoreTx<'_> {
    async fn stats_at(&mut self, at: &StatsAt) -> Result<Option<StatsRow>> {
        let read = "SELECT minute, body, workflows FROM stats \
             WHERE workspace = $1 AND span = $2 AND minute = $3 AND server = $4";
        let StatsAt { workspace, span, minute, server } = at;
        let row = self.row(read, &[&workspace.0, &span.minutes(), minute, server]).await?;
        row.as_ref().map(stats_row).transpose()
    }

    async fn put_stats(&mut self, at: &StatsAt, body: &str, workflows: &str) -> Result<()> {
        let put = "INSERT INTO stats (workspace, span, minute, server, body, workflows) VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (workspace, span, minute, server) DO UPDATE SET body = $5, workflows = $6";
        let StatsAt { workspace, span, minute, server } = at;
        let params: Params<'_> = &[&workspace.0, &span.minutes(), minute, server, &body, &workflows];
        self.write(put, params).await.map(drop)
    }

    async fn stats(&mut self, look: &StatsLook) -> Result<Vec<StatsRow>> {
        let StatsLook { workspace, span, from, to, workflows, limit } = *look;
        let read = "SELECT minute, body, CASE WHEN $6::boolean THEN workflows END FROM stats \
             WHERE workspace = $1 AND span = $2 AND minute >= $3 AND minute < $4 ORDER BY minute, server LIMIT $5";
        let params: Params<'_> = &[&workspace.0, &span.minutes(), &from, &to, &bigint(limit), &workflows];
        self.rows(read, params).await?.iter().map(stats_row).collect()
    }

    async fn delete_stats(&mut self, span: StatsSpan, before: i64, limit: usize) -> Result<usize> {
        let delete = "DELETE FROM stats WHERE ctid = ANY (ARRAY( \
             SELECT ctid FROM stats WHERE span = $1 AND minute < $2 ORDER BY span, minute LIMIT $3))";
        let params: Params<'_> = &[&span.minutes(), &before, &bigint(limit)];
        Ok(self.write(delete, params).await? as usize)
    }
}

fn stats_row(row: &Row) -> Result<StatsRow> {
    Ok(StatsRow { minute: column(row, 0)?, body: column(row, 1)?, workflows: column(row, 2)? })
}
