//! Lists of runs in SQLite. The statement names its index, because the planner would walk the runs of all tenants.

use rusqlite::{ToSql, params};

use super::tx::{RUN, SqliteStoreTx, failed, read_run};
use crate::error::Result;
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::Order;
use crate::store::list::{Index, Scan, Scanned};
use crate::store::tx::KeyScan;

/// The runs of a stretch of an index. The condition of a partial index has to stand there word for word.
fn select(index: &str, condition: &str) -> String {
    format!(include_str!("sql/list.sql"), run = RUN, index = index, condition = condition)
}

/// The statement that reads an index from one end on.
pub(crate) fn statement(index: &Index<'_>, order: Order) -> String {
    let undriven = |status: Status| {
        select("runs_status", &format!("AND status <> 4 AND node IS NULL AND status = {}", status.code()))
    };
    let runs = match index {
        Index::Workspace => select("runs_list", ""),
        Index::Workflow(_) => select("runs_workflow", "AND workflow = ?6"),
        // Those that are driven, and those that wait for the next node to drive them.
        Index::Status(Status::Running) => {
            let driven = select("runs_driven", "AND node IS NOT NULL");
            format!("{driven} UNION ALL {}", undriven(Status::Running))
        }
        Index::Status(other) => undriven(*other),
        Index::Attention(_) => select("runs_attention", "AND attention IS NOT NULL AND attention = ?6"),
        Index::Parent(_) => select("runs_parent", "AND parent IS NOT NULL AND parent = ?6"),
        Index::Lineage(_) => select("runs_lineage", "AND lineage <> id AND lineage = ?6"),
    };
    match order {
        Order::Newest => format!("{runs} ORDER BY created DESC, num DESC"),
        Order::Oldest => format!("{runs} ORDER BY created, num"),
    }
}

/// The statement that reads runs by their keys.
pub(crate) fn keys_statement(held: bool) -> String {
    let (index, condition) =
        if held { ("runs_key", "holds_key") } else { ("runs_lost_key", "NOT holds_key") };
    format!(include_str!("sql/keys.sql"), run = RUN, index = index, condition = condition)
}

impl SqliteStoreTx {
    /// Rows are read one by one, and no more of them than the pass needs.
    pub(super) fn scan(&self, scan: &Scan<'_>) -> Result<Scanned> {
        let (from, to) = (scan.range.from, scan.range.to);
        let (workspace, sql) = (scan.workspace(), statement(&scan.index, scan.query.order));
        let (workflow, code, run);
        let mut params: Vec<&dyn ToSql> = vec![&workspace, &to.0, &to.1, &from.0, &from.1];
        match scan.index {
            Index::Workflow(name) => {
                workflow = Name::as_str(name);
                params.push(&workflow);
            }
            Index::Attention(kind) => {
                code = kind.code();
                params.push(&code);
            }
            Index::Parent(id) | Index::Lineage(id) => {
                run = id;
                params.push(&run);
            }
            Index::Workspace | Index::Status(_) => {}
        }
        let mut statement = self.statement(&sql)?;
        let runs = statement.query_map(&*params, read_run).map_err(failed)?;
        scan.read(runs.map(|run| run.map_err(failed)))
    }

    pub(super) fn scan_keys(&self, scan: &KeyScan<'_>) -> Result<Vec<Run>> {
        let limit = i64::try_from(scan.limit).unwrap_or(i64::MAX);
        let (scope, end) = (scan.keys.scope.as_str(), scan.keys.end());
        let params = params![scan.workspace, scope, scan.start(), scan.left_out(), end, limit];
        self.all(&keys_statement(scan.held), params, read_run)
    }
}
