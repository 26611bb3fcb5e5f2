//! Counting in SQLite: every statement reads a bounded stretch of an index.

use std::collections::HashMap;

use rusqlite::params;

use super::tx::SqliteStoreTx;
use super::values::{Id, Text};
use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::tx::{CountRows, OpenRuns};

/// A partial index of runs, and its condition: SQLite takes the index only for a query that has it word for word.
struct PartialIndex(&'static str, &'static str);

/// Runs that no node drives, by workspace and status.
const UNDRIVEN: PartialIndex = PartialIndex("runs_status", "status <> 4 AND node IS NULL");
/// Runs that a node drives, by workspace. All of them are RUNNING.
const DRIVEN: PartialIndex = PartialIndex("runs_driven", "node IS NOT NULL");

/// The statuses of open runs.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Paused];

impl CountRows for SqliteStoreTx {
    async fn open_runs(&mut self, workspace: Option<WorkspaceId>, cap: usize) -> Result<OpenRuns> {
        self.count_open(workspace, cap)
    }

    async fn open_in(&mut self, workspace: WorkspaceId, cap: usize) -> Result<u64> {
        self.count_open_in(workspace, cap)
    }

    async fn due_now(&mut self, cap: usize) -> Result<u64> {
        self.count_due(cap)
    }

    async fn live_nodes(&mut self, cap: usize) -> Result<u64> {
        self.count_nodes(cap)
    }
}

impl SqliteStoreTx {
    fn count_open(&self, workspace: Option<WorkspaceId>, cap: usize) -> Result<OpenRuns> {
        let mut open = OpenRuns::default();
        let workspaces = |index| match workspace {
            Some(workspace) => Ok(vec![workspace]),
            None => self.workspaces(index, cap),
        };
        for workspace in workspaces(&UNDRIVEN)? {
            for status in OPEN {
                self.read_open(&UNDRIVEN, workspace, status, cap, &mut open)?;
            }
        }
        for workspace in workspaces(&DRIVEN)? {
            self.read_open(&DRIVEN, workspace, Status::Running, cap, &mut open)?;
        }
        Ok(open)
    }

    /// The workspaces in an index, found one after the other.
    fn workspaces(
        &self,
        PartialIndex(index, condition): &PartialIndex,
        cap: usize,
    ) -> Result<Vec<WorkspaceId>> {
        let sql = format!(
            "SELECT workspace FROM runs INDEXED BY {index} WHERE {condition} AND workspace > ?1 ORDER BY workspace LIMIT 1"
        );
        let mut found: Vec<WorkspaceId> = Vec::new();
        while found.len() < cap {
            let last = found.last().map_or_else(Vec::new, |workspace| workspace.0.as_bytes().to_vec());
            let Some(next) = self.first(&sql, [last], |row| row.get::<_, Id>(0))? else { break };
            found.push(WorkspaceId(next.0));
        }
        Ok(found)
    }

    /// Adds the open runs of a workspace, as long as there are fewer than `cap` of the status.
    fn read_open(
        &self,
        PartialIndex(index, condition): &PartialIndex,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
        open: &mut OpenRuns,
    ) -> Result<()> {
        let left = cap.saturating_sub(open.of(status) as usize);
        let sql = format!(include_str!("sql/open_runs.sql"), index = index, condition = condition);
        let params = params![workspace, status, i64::try_from(left).unwrap_or(i64::MAX)];
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Text<Name>>(1)?.0));
        let mut counts: HashMap<Name, u64> = HashMap::new();
        for (num, workflow) in self.all::<(i64, Name)>(&sql, params, read)? {
            *counts.entry(workflow).or_default() += 1;
            if status == Status::Paused {
                open.paused.push(num);
            }
        }
        open.counts.extend(counts.into_iter().map(|(workflow, count)| (workflow, status, count)));
        Ok(())
    }

    fn count_open_in(&self, workspace: WorkspaceId, cap: usize) -> Result<u64> {
        let mut open = 0;
        for status in OPEN {
            open += self.count_stretch(&UNDRIVEN, workspace, status, cap)?;
        }
        open += self.count_stretch(&DRIVEN, workspace, Status::Running, cap)?;
        Ok(open.min(cap as u64))
    }

    fn count_stretch(
        &self,
        PartialIndex(index, condition): &PartialIndex,
        workspace: WorkspaceId,
        status: Status,
        cap: usize,
    ) -> Result<u64> {
        let sql = format!(include_str!("sql/open_in.sql"), index = index, condition = condition);
        let params = params![workspace, status, i64::try_from(cap).unwrap_or(i64::MAX)];
        Ok(self.first(&sql, params, |row| row.get(0))?.unwrap_or_default())
    }

    fn count_due(&self, cap: usize) -> Result<u64> {
        let params = params![self.now, i64::try_from(cap).unwrap_or(i64::MAX)];
        Ok(self.first(include_str!("sql/due_now.sql"), params, |row| row.get(0))?.unwrap_or_default())
    }

    fn count_nodes(&self, cap: usize) -> Result<u64> {
        let sql = "SELECT count(*) FROM (SELECT 1 FROM nodes WHERE lease > ?1 AND NOT departed LIMIT ?2)";
        let params = params![self.now, i64::try_from(cap).unwrap_or(i64::MAX)];
        Ok(self.first(sql, params, |row| row.get(0))?.unwrap_or_default())
    }
}
