//! Lists of runs in PostgreSQL.

use tokio_postgres::types::ToSql;

use super::rows::{self, bigint, column, run_columns};
use super::tx::PgStoreTx;
use crate::error::Result;
use crate::rules::path::Name;
use crate::store::list::{Index, Scan, Scanned, place};

/// The columns of a bounded statement behind those of the run: whether it is wanted, and how many were read until it.
const WANTED: usize = 25;
const READ: usize = 26;

/// The statement of a pass. Parameters: workspace, the place to begin behind ($2, $3), the earliest time of creation, how
/// many are wanted, then the workflow and the bound on rows if the text has them. States are written out: only then is
/// their partial index known to serve.
pub(crate) fn statement(scan: &Scan<'_>) -> String {
    const ORDER: &str = "ORDER BY r.created DESC, r.num DESC LIMIT";
    let stretch = match scan.index {
        Index::Workspace => String::new(),
        Index::Workflow(_) => "AND r.workflow = $6".to_owned(),
        Index::Status(status) => format!("AND r.status = {}", status.code()),
    };
    let stretch = format!(
        "FROM runs r WHERE r.workspace = $1 AND (r.created, r.num) < ($2, $3) AND r.created >= $4 {stretch}"
    );
    let workflow = scan.filter_workflow().map(|_| "r.workflow = $6".to_owned());
    let status = scan.filter_status().map(|status| format!("r.status = {}", status.code()));
    let filters: Vec<_> = workflow.into_iter().chain(status).collect();
    if filters.is_empty() {
        return format!("SELECT {} {stretch} {ORDER} $5", run_columns!());
    }
    // The row at the bound comes along, wanted or not: there the next page begins.
    let (filter, rows) = (filters.join(" AND "), if scan.query.workflow.is_some() { "$7" } else { "$6" });
    format!(
        "SELECT {columns}, r.wanted, r.read FROM (SELECT r.*, ({filter}) AS wanted, \
         row_number() OVER (ORDER BY r.created DESC, r.num DESC) AS read FROM (SELECT r.* {stretch} {ORDER} {rows}) r) r WHERE r.wanted OR r.read = {rows} {ORDER} $5",
        columns = run_columns!()
    )
}

impl PgStoreTx<'_> {
    pub(super) async fn scan(&self, scan: &Scan<'_>) -> Result<Scanned> {
        let (created, num) = scan.before.map_or((i64::MAX, i64::MAX), |(created, num)| (created.0, num));
        let since = scan.query.since.map_or(i64::MIN, |since| since.0);
        let workflow = scan.query.workflow.as_ref().map(Name::as_str);
        let (limit, most) = (bigint(scan.limit), bigint(scan.rows()));
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&scan.query.workspace.0, &created, &num, &since, &limit];
        params.extend(workflow.as_ref().map(|name| name as &(dyn ToSql + Sync)));
        let bounded = scan.is_filtered();
        if bounded {
            params.push(&most);
        }
        let mut found = Scanned::default();
        for row in &self.rows(&statement(scan), &params).await? {
            let run = rows::run_of(row)?;
            let at = (place(&run), run.id());
            if !bounded || column(row, WANTED)? {
                found.runs.push(run);
            }
            if bounded && column::<i64>(row, READ)? == most && found.runs.len() < scan.limit {
                found.stopped_at = Some(at);
            }
        }
        Ok(found)
    }
}
