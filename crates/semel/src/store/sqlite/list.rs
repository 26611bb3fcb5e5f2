//! Lists of runs in SQLite. The statement names its index, because the planner would walk the runs of all tenants.

use rusqlite::{Params, params};

use super::tx::{RUN, SqliteStoreTx, failed, read_run};
use crate::error::Result;
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::list::{Index, Scan, Scanned};

/// The runs of a stretch of an index. The condition of a partial index has to stand there word for word.
fn select(index: &str, condition: &str) -> String {
    format!(include_str!("sql/list.sql"), run = RUN, index = index, condition = condition)
}

/// The statement that reads an index from the newest run on.
pub(crate) fn statement(index: &Index<'_>) -> String {
    let undriven = |status: Status| {
        select("runs_status", &format!("AND status <> 4 AND node IS NULL AND status = {}", status.code()))
    };
    let runs = match index {
        Index::Workspace => select("runs_list", ""),
        Index::Workflow(_) => select("runs_workflow", "AND workflow = ?5"),
        // Those that are driven, and those that wait for the next node to drive them.
        Index::Status(Status::Running) => {
            let driven = select("runs_driven", "AND node IS NOT NULL");
            format!("{driven} UNION ALL {}", undriven(Status::Running))
        }
        Index::Status(other) => undriven(*other),
    };
    format!("{runs} ORDER BY created DESC, num DESC")
}

impl SqliteStoreTx {
    /// Rows are read one by one, and no more of them than the pass needs.
    pub(super) fn scan(&self, scan: &Scan<'_>) -> Result<Scanned> {
        let (created, num) = scan.before.map_or((i64::MAX, i64::MAX), |(created, num)| (created.0, num));
        let since = scan.query.since.map_or(i64::MIN, |since| since.0);
        let (workspace, sql) = (scan.query.workspace, statement(&scan.index));
        match scan.index {
            Index::Workflow(workflow) => {
                self.read(scan, &sql, params![workspace, created, num, since, Name::as_str(workflow)])
            }
            _ => self.read(scan, &sql, params![workspace, created, num, since]),
        }
    }

    fn read(&self, scan: &Scan<'_>, sql: &str, params: impl Params) -> Result<Scanned> {
        let mut statement = self.statement(sql)?;
        let runs = statement.query_map(params, read_run).map_err(failed)?;
        scan.read(runs.map(|run| run.map_err(failed)))
    }
}
