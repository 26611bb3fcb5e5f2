//! Figures of workspaces, by minute and by hour.

use super::MemoryTx;
use crate::error::Result;
use crate::rules::stats::StatsSpan;
use crate::store::tx::{StatsAt, StatsLook, StatsRow, StatsRows};

impl StatsRows for MemoryTx<'_> {
    async fn stats_at(&mut self, at: &StatsAt) -> Result<Option<StatsRow>> {
        Ok(self.tables.stats.get(at).cloned())
    }

    async fn put_stats(&mut self, at: &StatsAt, body: &str, workflows: &str) -> Result<()> {
        let row =
            StatsRow { minute: at.minute, body: body.to_owned(), workflows: Some(workflows.to_owned()) };
        self.write().stats.insert(*at, row);
        Ok(())
    }

    async fn stats(&mut self, look: &StatsLook) -> Result<Vec<StatsRow>> {
        let wanted = |at: &StatsAt| {
            at.workspace == look.workspace
                && at.span == look.span
                && (look.from..look.to).contains(&at.minute)
        };
        let rows = self.tables.stats.iter().filter(|(at, _)| wanted(at)).take(look.limit);
        let shown = |row: &StatsRow| StatsRow {
            workflows: row.workflows.clone().filter(|_| look.workflows),
            ..row.clone()
        };
        Ok(rows.map(|(_, row)| shown(row)).collect())
    }

    async fn delete_stats(&mut self, span: StatsSpan, before: i64, limit: usize) -> Result<usize> {
        let old = self.tables.stats.keys().filter(|at| at.span == span && at.minute < before);
        let old: Vec<_> = old.take(limit).copied().collect();
        for at in &old {
            self.write().stats.remove(at);
        }
        Ok(old.len())
    }
}
