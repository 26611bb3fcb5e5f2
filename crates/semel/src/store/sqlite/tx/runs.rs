//! Runs: their headers, their keys, and the guarded change of their state.

use rusqlite::params;

use super::{RUN, RUNS, SqliteStoreTx, read_run};
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::{Key, Scope};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::status::Status;
use crate::store::list::{Scan, Scanned};
use crate::store::sqlite::starts::RunningFlag;
use crate::store::sqlite::steps::{Entries, Steps};
use crate::store::tx::{KeyScan, RunRows};

impl RunRows for SqliteStoreTx {
    async fn insert_run(&mut self, new: &NewRun, state: &RunState, text: &str) -> Result<Option<i64>> {
        let Some(num) = self.insert_header(new, state)? else { return Ok(None) };
        self.insert_row(num, None, 0, self.now, text)?;
        self.insert_head(num, state, Some(self.last_row))?;
        self.heads.remember(num, state.version, self.last_row);
        Ok(Some(num))
    }

    async fn holder(&mut self, workspace: WorkspaceId, scope: &Scope, key: &Key) -> Result<Option<Run>> {
        let condition = "workspace = ? AND scope = ? AND key = ? AND holds_key";
        self.run_where(condition, params![workspace, scope.as_str(), key.as_str()])
    }

    async fn run(&mut self, id: RunId) -> Result<Option<Run>> {
        self.run_where("id = ?", [id])
    }

    async fn run_at(&mut self, num: i64) -> Result<Option<Run>> {
        self.run_where("num = ?", [num])
    }

    async fn status(&mut self, id: RunId) -> Result<Option<Status>> {
        self.first("SELECT status FROM runs WHERE id = ?", [id], |row| row.get(0))
    }

    async fn save(&mut self, num: i64, expected: u64, state: &RunState) -> Result<bool> {
        let RunState { version, stalls, .. } = state;
        let sql = "UPDATE heads SET version = ?3, running = ?4, stalls = ?5 WHERE num = ?1 AND version = ?2";
        if self.write(sql, params![num, expected, version, RunningFlag::of(state), stalls])? == 0 {
            return Ok(false);
        }
        self.save_header(num, state).map(|()| true)
    }

    async fn save_with(&mut self, num: i64, expected: u64, state: &RunState, text: &str) -> Result<bool> {
        let RunState { version, stalls, .. } = state;
        let prev = match self.heads.last(num, expected) {
            Some(row) => Some(row),
            None => self.last_row_of(num)?,
        };
        let row = self.last_row + 1;
        let sql = include_str!("../sql/save_with.sql");
        if self.write(sql, params![num, expected, version, RunningFlag::of(state), stalls, row])? == 0 {
            return Ok(false);
        }
        self.heads.forget(num);
        self.save_header(num, state)?;
        self.insert_row(num, prev, expected, self.now, text).map(|()| true)
    }

    async fn advance(&mut self, num: i64, expected: u64, count: u64, text: &str) -> Result<bool> {
        let entries = Entries { num, expected, count, at: self.now, text, end: None };
        let row = self.last_row + 1;
        let mut steps = Steps::prepare(&self.conn)?;
        let advanced = steps.advance(&mut self.heads, row, &entries)?;
        steps.finish()?;
        if advanced {
            self.last_row = row;
            self.count_writes(1);
        }
        Ok(advanced)
    }

    // Repeats `Status::is_terminal`: statuses from 4 on have ended.
    async fn open_children(&mut self, parent: RunId) -> Result<Vec<Run>> {
        self.all(
            &format!("SELECT {RUN} FROM {RUNS} WHERE parent = ? AND status < 4 ORDER BY num"),
            [parent],
            read_run,
        )
    }

    async fn list(&mut self, scan: &Scan<'_>) -> Result<Scanned> {
        self.scan(scan)
    }

    async fn keys(&mut self, scan: &KeyScan<'_>) -> Result<Vec<Run>> {
        self.scan_keys(scan)
    }
}
