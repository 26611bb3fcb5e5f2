//! Figures of workspaces, by minute and by hour.

use rusqlite::{Row, params};

use super::SqliteStoreTx;
use crate::error::Result;
use crate::rules::stats::StatsSpan;
use crate::store::tx::{StatsAt, StatsLook, StatsRow, StatsRows};

impl StatsRows for SqliteStoreTx {
    async fn stats_at(&mut self, at: &StatsAt) -> Result<Option<StatsRow>> {
        let sql = "SELECT minute, body, workflows FROM stats WHERE workspace = ? AND span = ? AND minute = ? AND server = ?";
        let StatsAt { workspace, span, minute, server } = at;
        self.first(sql, params![workspace, span.minutes(), minute, server.as_bytes()], stats_row)
    }

    async fn put_stats(&mut self, at: &StatsAt, body: &str, workflows: &str) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO stats (workspace, span, minute, server, body, workflows) VALUES (?, ?, ?, ?, ?, ?)";
        let StatsAt { workspace, span, minute, server } = at;
        let params = params![workspace, span.minutes(), minute, server.as_bytes(), body, workflows];
        self.write(sql, params).map(drop)
    }

    async fn stats(&mut self, look: &StatsLook) -> Result<Vec<StatsRow>> {
        let StatsLook { workspace, span, from, to, workflows, limit } = *look;
        // A column that is not asked for is not read: it may be long.
        let workflows = if workflows { "workflows" } else { "NULL" };
        let sql = format!(
            "SELECT minute, body, {workflows} FROM stats \
             WHERE workspace = ? AND span = ? AND minute >= ? AND minute < ? ORDER BY minute, server LIMIT ?"
        );
        self.all(&sql, params![workspace, span.minutes(), from, to, limit as i64], stats_row)
    }

    async fn delete_stats(&mut self, span: StatsSpan, before: i64, limit: usize) -> Result<usize> {
        let sql = "DELETE FROM stats WHERE rowid IN (SELECT rowid FROM stats WHERE span = ? AND minute < ? LIMIT ?)";
        self.write(sql, params![span.minutes(), before, limit as i64])
    }
}

fn stats_row(row: &Row<'_>) -> rusqlite::Result<StatsRow> {
    Ok(StatsRow { minute: row.get(0)?, body: row.get(1)?, workflows: row.get(2)? })
}
