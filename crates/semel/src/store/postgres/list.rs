//! Lists of runs in PostgreSQL.

use super::binds::{Binds, Bound};
use super::rows::{self, bigint, column, run_columns, select_run};
use super::tx::PgStoreTx;
use crate::error::Result;
use crate::rules::run::Run;
use crate::store::Order;
use crate::store::list::{Index, Scan, Scanned, place};
use crate::store::tx::KeyScan;

/// The columns of a bounded statement behind those of the run: whether it is wanted, and how many were read until it.
const WANTED: usize = 26;
const READ: usize = 27;

/// The statement of a pass, with its parameters. States are written out: only then is their partial index known to serve.
pub(crate) fn statement(scan: &Scan<'_>) -> (String, Binds) {
    let mut binds = Binds::default();
    let stretch = stretch(scan, &mut binds);
    let filters = filters(scan, &mut binds);
    let order = match scan.query.order {
        Order::Newest => "r.created DESC, r.num DESC",
        Order::Oldest => "r.created, r.num",
    };
    let limit = binds.add(Bound::Big(bigint(scan.limit)));
    if filters.is_empty() {
        return (format!("SELECT {} {stretch} ORDER BY {order} LIMIT {limit}", run_columns!()), binds);
    }
    // The row at the bound comes along, wanted or not: there the next page begins.
    let (filter, rows) = (filters.join(" AND "), binds.add(Bound::Big(bigint(scan.rows()))));
    let text = format!(
        "SELECT {columns}, r.wanted, r.read FROM (SELECT r.*, ({filter}) AS wanted, \
         row_number() OVER (ORDER BY {order}) AS read FROM (SELECT r.* {stretch} ORDER BY {order} LIMIT {rows}) r) r \
         WHERE r.wanted OR r.read = {rows} ORDER BY {order} LIMIT {limit}",
        columns = run_columns!()
    );
    (text, binds)
}

/// The stretch of the index. Runs of another workspace are left out also where the index has them.
fn stretch(scan: &Scan<'_>, binds: &mut Binds) -> String {
    let mut add = |value| binds.add(value);
    let workspace = add(Bound::Id(scan.workspace().0));
    let [from, to] = [scan.range.from, scan.range.to]
        .map(|(created, num)| format!("({}, {})", add(Bound::Big(created.0)), add(Bound::Big(num))));
    let condition = match scan.index {
        Index::Workspace => String::new(),
        Index::Workflow(workflow) => format!("AND r.workflow = {}", add(Bound::Text(workflow.to_string()))),
        Index::Status(status) => format!("AND r.status = {}", status.code()),
        Index::Attention(kind) => {
            format!("AND r.attention IS NOT NULL AND r.attention = {}", add(Bound::Small(kind.code())))
        }
        Index::Parent(run) => format!("AND r.parent IS NOT NULL AND r.parent = {}", add(Bound::Id(run.0))),
        Index::Lineage(run) => format!("AND r.lineage <> r.id AND r.lineage = {}", add(Bound::Id(run.0))),
    };
    format!(
        "FROM runs r WHERE r.workspace = {workspace} AND (r.created, r.num) >= {from} AND (r.created, r.num) < {to} \
         {condition}"
    )
}

/// The conditions that the index does not answer. They repeat [`Query::wants`](crate::store::Query::wants).
fn filters(scan: &Scan<'_>, binds: &mut Binds) -> Vec<String> {
    let mut filters = Vec::new();
    let mut add = |column: &str, comparison: &str, value| {
        let place = binds.add(value);
        filters.push(match comparison {
            "ANY" => format!("r.{column} = ANY ({place})"),
            _ => format!("r.{column} {comparison} {place}"),
        });
    };
    let (workflows, statuses) = (scan.filter_workflows(), scan.filter_statuses());
    if !workflows.is_empty() {
        add("workflow", "ANY", Bound::Texts(workflows.iter().map(ToString::to_string).collect()));
    }
    if !statuses.is_empty() {
        add("status", "ANY", Bound::Smalls(statuses.iter().map(|status| status.code()).collect()));
    }
    let query = scan.query;
    if let Some(version) = &query.workflow_version {
        add("workflow_version", "=", Bound::Text(version.to_string()));
    }
    if let Some(keys) = &query.key_prefix {
        add("scope", "=", Bound::Text(keys.scope.as_str().to_owned()));
        add("key", ">=", Bound::Text(keys.prefix.clone()));
        add("key", "<", Bound::Text(keys.end()));
    }
    if let Some(since) = query.ended_since {
        // No end is later than never.
        add("ended IS NOT NULL AND r.ended", ">=", Bound::Big(since.0));
    }
    if let Some(node) = query.node {
        add("node IS NOT NULL AND r.node", "=", Bound::Id(node.0));
    }
    if let Some(kind) = scan.filter_attention() {
        add("attention IS NOT NULL AND r.attention", "=", Bound::Small(kind.code()));
    }
    if let Some(parent) = scan.filter_parent() {
        add("parent IS NOT NULL AND r.parent", "=", Bound::Id(parent.0));
    }
    if let Some(lineage) = scan.filter_lineage() {
        add("lineage", "=", Bound::Id(lineage.0));
    }
    filters
}

/// The statements that read runs by their keys: those that hold them, and those that have lost them.
pub(crate) const KEYS: [&str; 2] = [
    select_run!(
        "FROM runs r WHERE r.workspace = $1 AND r.scope = $2 AND r.key >= $3 AND r.key <> $4 AND r.key < $5 \
         AND r.holds_key ORDER BY r.key LIMIT $6"
    ),
    select_run!(
        "FROM runs r WHERE r.workspace = $1 AND r.scope = $2 AND r.key >= $3 AND r.key <> $4 AND r.key < $5 \
         AND NOT r.holds_key ORDER BY r.key, r.num LIMIT $6"
    ),
];

impl PgStoreTx<'_> {
    pub(super) async fn scan(&self, scan: &Scan<'_>) -> Result<Scanned> {
        let (text, binds) = statement(scan);
        let (bounded, most) = (scan.is_filtered(), bigint(scan.rows()));
        let mut found = Scanned::default();
        for row in &self.rows(&text, &binds.params()).await? {
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

    pub(super) async fn scan_keys(&self, scan: &KeyScan<'_>) -> Result<Vec<Run>> {
        let (scope, start, end) = (scan.keys.scope.as_str(), scan.start(), scan.keys.end());
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&scan.workspace.0, &scope, &start, &scan.left_out(), &end, &bigint(scan.limit)];
        self.rows(KEYS[usize::from(!scan.held)], &params).await?.iter().map(rows::run_of).collect()
    }
}
