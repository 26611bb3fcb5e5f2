//! Statements of lists and of claims, as the SQL stores send them. A test with few runs cannot tell a look-up from a scan by
//! its time; the database's plan tells.

use crate::id::WorkspaceId;
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::Query;
use crate::store::list::Scan;
use crate::store::{postgres, sqlite};

/// A statement whose plan is checked. Of a list: for one combination of filters and one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedStatement {
    /// The text, with parameters.
    pub text: String,
    /// The values of the parameters, as literals of PostgreSQL separated by commas.
    pub values: String,
    /// Most runs that it may read.
    pub reads: usize,
}

/// The runs of one page in these statements.
pub const LIMIT: usize = 50;

/// The settings of every connection to PostgreSQL, as the parameter `options` of libpq.
pub const POSTGRES_SETTINGS: &str = postgres::SETTINGS;

/// All statements of lists on SQLite.
pub fn sqlite_lists() -> Vec<PlannedStatement> {
    each(|scan| sqlite::list_statement(&scan.index))
}

/// All statements of lists on PostgreSQL.
pub fn postgres_lists() -> Vec<PlannedStatement> {
    each(postgres::list_statement)
}

/// What `text` makes of every combination of filters, on every index that a list with them reads. `workflow` is the name
/// of the workflow asked for.
fn each(text: impl Fn(&Scan<'_>) -> String) -> Vec<PlannedStatement> {
    let workflow = Name::new("order").expect("a name");
    let mut statements = Vec::new();
    for status in [None].into_iter().chain(Status::ALL.map(Some)) {
        for workflow in [None, Some(workflow.clone())] {
            let query = Query { status, workflow, ..Query::all(WorkspaceId::DEFAULT, LIMIT) };
            for index in query.indexes() {
                let scan = Scan { query: &query, index, before: None, limit: LIMIT };
                let place =
                    format!("'{}', {max}, {max}, {}", WorkspaceId::DEFAULT.0, i64::MIN, max = i64::MAX);
                let named = query.workflow.as_ref().map_or(String::new(), |name| format!(", '{name}'"));
                let bound = if scan.is_filtered() { format!(", {}", scan.rows()) } else { String::new() };
                let values = format!("{place}, {LIMIT}{named}{bound}");
                statements.push(PlannedStatement { text: text(&scan), values, reads: scan.rows() });
            }
        }
    }
    statements
}

/// Families in the statements of claims.
pub const FAMILIES: [&str; 2] = ["def1_", "sch1_"];

/// The statements on SQLite that look for due runs of a family, and for the next time at which one is due.
pub fn sqlite_families() -> Vec<String> {
    sqlite::family_statements().into()
}

/// The same on PostgreSQL, for [`FAMILIES`] at a time when all runs of the test are due.
pub fn postgres_families() -> Vec<PlannedStatement> {
    let prefixes = format!("'{{{}}}'", FAMILIES.join(","));
    let [due, next] = postgres::family_statements();
    let due = PlannedStatement {
        text: due.to_owned(),
        values: format!("{prefixes}, 1000000, {LIMIT}"),
        reads: LIMIT * FAMILIES.len(),
    };
    let next = PlannedStatement {
        text: next.to_owned(),
        values: format!("{prefixes}, 1000"),
        reads: FAMILIES.len(),
    };
    vec![due, next]
}
