//! Due runs: what a claim looks for, and takes.

use rusqlite::params;

use super::{RUN, SqliteStoreTx, read_run};
use crate::clock::Time;
use crate::error::Result;
use crate::rules::claim::Drives;
use crate::rules::family::Family;
use crate::rules::run::Run;
use crate::store::tx::DueRows;

/// As in the index `runs_family`: SQLite takes a partial index only for a query that has its condition word for word.
const OF_FAMILY: &str =
    "substr(workflow_version, 5, 1) = '_' AND substr(workflow_version, 1, 5) = ? AND due IS NOT NULL";

/// The statements about one family: its due runs, one range of the index; and the next time at which a run is due.
pub(crate) fn family_statements() -> [String; 2] {
    [
        format!(include_str!("../sql/due_in.sql"), run = RUN, of_family = OF_FAMILY),
        format!("SELECT min(due) FROM runs INDEXED BY runs_family WHERE {OF_FAMILY} AND due > ?"),
    ]
}

impl DueRows for SqliteStoreTx {
    async fn due(&mut self, workflows: &[Drives], limit: usize) -> Result<Vec<Run>> {
        let sql = format!(include_str!("../sql/due.sql"), run = RUN);
        let mut found = Vec::new();
        for Drives { workspace, workflow, workflow_version } in workflows {
            let of = params![workspace, workflow.as_str(), workflow_version.as_str(), self.now, limit as i64];
            found.extend(self.all(&sql, of, read_run)?);
        }
        found.sort_by_key(|run| (run.state.due, run.num));
        found.dedup_by_key(|run| run.num);
        found.truncate(limit);
        Ok(found)
    }

    async fn dues(&mut self, workflows: &[Drives], after: Time) -> Result<Vec<Option<Time>>> {
        workflows.iter().map(|drives| self.due_after(drives, after)).collect()
    }

    // Due runs of families: one range of the index for each family.
    async fn due_in(&mut self, families: &[Family], limit: usize) -> Result<Vec<Run>> {
        let [sql, _] = family_statements();
        let mut found = Vec::new();
        for family in families {
            found.extend(self.all(&sql, params![family.as_str(), self.now, limit as i64], read_run)?);
        }
        found.sort_by_key(|run| (run.state.due, run.num));
        found.truncate(limit);
        Ok(found)
    }

    // The earliest time later than `after` at which a run of a family is due.
    async fn next_due_in(&mut self, families: &[Family], after: Time) -> Result<Option<Time>> {
        let [_, sql] = family_statements();
        let mut next = None;
        for family in families {
            let of = params![family.as_str(), after];
            let first: Option<Option<i64>> = self.first(&sql, of, |row| row.get(0))?;
            next = next.into_iter().chain(first.flatten().map(Time)).min();
        }
        Ok(next)
    }

    async fn overdue(&mut self, limit: usize) -> Result<Vec<Run>> {
        let sql = format!(include_str!("../sql/overdue.sql"), run = RUN);
        self.all(&sql, params![self.now, limit as i64], read_run)
    }
}

impl SqliteStoreTx {
    /// The earliest time later than `after` at which a run of this version of a workflow is due: one look into the index.
    pub(in crate::store::sqlite) fn due_after(&self, drives: &Drives, after: Time) -> Result<Option<Time>> {
        let Drives { workspace, workflow, workflow_version } = drives;
        let sql = include_str!("../sql/due_after.sql");
        let of = params![workspace, workflow.as_str(), workflow_version.as_str(), after];
        let first: Option<Option<i64>> = self.first(sql, of, |row| row.get(0))?;
        Ok(first.flatten().map(Time))
    }
}
