//! Statements of lists and of claims, as the SQL stores send them. A test with few runs cannot tell a look-up from a scan by
//! its time; the database's plan tells.

use crate::clock::Time;
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::attention::Attention;
use crate::rules::key::Scope;
use crate::rules::path::Name;
use crate::rules::status::Status;
use crate::store::list::{Pass, Range, Scan};
use crate::store::{KeyPrefix, Order, Query, postgres, sqlite};

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

/// All statements of lists on SQLite, and those that read runs by their keys.
pub fn sqlite_lists() -> Vec<PlannedStatement> {
    let list = |scan: &Scan<'_>| PlannedStatement {
        text: sqlite::list_statement(&scan.index, scan.query.order),
        values: String::new(),
        reads: scan.rows(),
    };
    let keys = [true, false].map(|held| PlannedStatement {
        text: sqlite::keys_statement(held),
        values: String::new(),
        reads: LIMIT,
    });
    each(list).into_iter().chain(keys).collect()
}

/// All statements of lists on PostgreSQL, and those that read runs by their keys.
pub fn postgres_lists() -> Vec<PlannedStatement> {
    let list = |scan: &Scan<'_>| {
        let (text, binds) = postgres::list_statement(scan);
        let values: Vec<_> = binds.0.iter().map(crate::store::postgres::Bound::literal).collect();
        PlannedStatement { text, values: values.join(", "), reads: scan.rows() }
    };
    let values = format!("'{}', '*', '1', '1', '2', {LIMIT}", WorkspaceId::DEFAULT.0);
    let keys = postgres::KEYS.map(|text| PlannedStatement {
        text: text.to_owned(),
        values: values.clone(),
        // The key that is left out is read.
        reads: LIMIT + 1,
    });
    each(list).into_iter().chain(keys).collect()
}

/// The statements of every pass that lists with these filters make, in both orders.
fn each(statement: impl Fn(&Scan<'_>) -> PlannedStatement) -> Vec<PlannedStatement> {
    let mut statements: Vec<PlannedStatement> = Vec::new();
    for query in queries() {
        for pass in query.passes() {
            let Pass::Ordered(indexes) = pass else { continue };
            for index in indexes {
                let range = Range::of(&query, None);
                let scan = Scan { query: &query, index, range, limit: LIMIT, look_at: query.look_at };
                let statement = statement(&scan);
                if !statements.contains(&statement) {
                    statements.push(statement);
                }
            }
        }
    }
    statements
}

/// Every combination of states and workflows with each of the other filters.
fn queries() -> Vec<Query> {
    let run = RunId(uuid::Uuid::from_u128(7));
    let others: [fn(&mut Query, RunId); 9] = [
        |_, _| {},
        |query, _| query.workflow_version = Some(name("1")),
        |query, _| {
            query.key_prefix =
                Some(KeyPrefix { scope: Scope::parse("*").expect("a scope"), prefix: "order-".to_owned() });
        },
        |query, _| (query.since, query.until) = (Some(Time(1_000)), Some(Time(2_000))),
        |query, _| query.ended_since = Some(Time(1)),
        |query, run| query.parent = Some(run),
        |query, run| query.lineage = Some(run),
        |query, run| query.node = Some(NodeId(run.0)),
        |query, _| query.attention = Some(Attention::InDoubt),
    ];
    let several = vec![Status::Failed, Status::Paused];
    let statuses = [Vec::new(), several].into_iter().chain(Status::ALL.map(|status| vec![status]));
    let mut queries = Vec::new();
    for status in statuses {
        for workflow in [vec![], vec![name("order")], vec![name("order"), name("refund")]] {
            for (other, order) in others.iter().flat_map(|other| ORDERS.map(|order| (other, order))) {
                let (status, workflow) = (status.clone(), workflow.clone());
                let mut query = Query { status, workflow, order, ..Query::all(WorkspaceId::DEFAULT, LIMIT) };
                other(&mut query, run);
                queries.push(query);
            }
        }
    }
    queries
}

const ORDERS: [Order; 2] = [Order::Newest, Order::Oldest];

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// The statements on SQLite that list hooks and that count, each with the index that it reads.
pub fn sqlite_questions() -> Vec<(String, &'static str)> {
    let hooks = [(sqlite::HOOKS_BY_TOKEN, "sqlite_autoindex_hooks_1"), (sqlite::HOOKS_BY_AGE, "hooks_age")];
    let hooks = hooks.map(|(text, index)| (text.to_owned(), index));
    sqlite::count_statements().into_iter().chain(hooks).collect()
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
