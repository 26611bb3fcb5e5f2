//! When runs become due.

use rusqlite::params;

use super::tx::SqliteTx;
use crate::clock::Time;
use crate::error::Result;
use crate::rules::claim::Drives;

impl SqliteTx {
    /// The earliest time later than `after` at which a run of this version of a workflow is due: one look into the index.
    pub(super) fn due_after(&self, drives: &Drives, after: Time) -> Result<Option<Time>> {
        let Drives { workspace, workflow, workflow_version } = drives;
        let sql = "SELECT min(due) FROM runs \
             WHERE workspace = ? AND workflow = ? AND workflow_version = ? AND due > ?";
        let of = params![workspace, workflow.as_str(), workflow_version.as_str(), after];
        let first: Option<Option<i64>> = self.first(sql, of, |row| row.get(0))?;
        Ok(first.flatten().map(Time))
    }
}
