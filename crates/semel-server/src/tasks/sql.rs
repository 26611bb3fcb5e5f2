//! `sql`: a statement in a database of the user's.
//!
//! `run` is transactional: its rows, and its outcome as a row of the fence table, are one commit. `read` is a query in a transaction
//! that cannot write.

use super::database::{self, AnyPool, DATABASES, StatementLimits};
use super::{Checks, Class, Executing, Kind, TaskCall};
use crate::connections::{Connections, on_database};
use crate::databases::{Guarded, Spelling, SqlSource, Statement};
use crate::definitions::shape::{Field, Shape};
use crate::definitions::template::{Filled, Template};

/// Maximum number of rows that `expect` can name.
const MOST_EXPECTED: i64 = 1_000_000_000;

pub(super) static KIND: Kind = Kind {
    name: "sql",
    about: "Executes a statement in a database, in one commit with its outcome. Its value is `{affected, rows}`.",
    args: Shape::Object(&[
        Field::required("on", Shape::Name, "Connection that is the database."),
        Field::new(
            "run",
            Shape::Statement,
            "Statement that changes rows; `:name` is replaced by a value of `args`.",
        ),
        Field::new("read", Shape::Statement, "Query; it runs in a transaction that cannot write."),
        Field::new("args", Shape::Map(&Shape::Any), "Values of the names in the statement."),
        Field::new(
            "expect",
            Shape::Integer(0, MOST_EXPECTED),
            "Number of rows that are changed or read; any other is the error `EXPECT`, and nothing is changed.",
        ),
    ]),
    on: DATABASES,
    tries: true,
    class,
    check,
    execute,
};

fn class(args: &Template) -> Class {
    if args.get("read").is_some() { Class::Keyed } else { Class::Transaction }
}

fn execute(call: TaskCall<'_>) -> Executing<'_> {
    Box::pin(async move {
        let connections = call.ctx.state::<Connections>();
        let on = call.args.get("on").and_then(Template::text).unwrap_or_default();
        let found = database::find(call.ctx, &connections, on).await;
        let (connection, target) = match &found {
            Ok(found) => found.parts(),
            Err(why) => {
                let source = Guarded::<AnyPool>::missing(why.clone());
                return on_source(call, &source, &StatementLimits::missing()).await;
            }
        };
        let limits = StatementLimits::new(call.step, connection, target);
        on_database!(target, connection, source => on_source(call, &source, &limits).await)
    })
}

async fn on_source<S: SqlSource>(
    call: TaskCall<'_>,
    source: &Guarded<S>,
    limits: &StatementLimits,
) -> semel::Result<super::TaskEnd> {
    match call.args.get("read") {
        Some(_) => database::read(call, source, limits).await,
        None => database::write(call, &KIND, source, limits).await,
    }
}

/// The database is not known yet: a statement passes if one of them takes it.
fn check(args: &Template, checks: &mut Checks<'_>) {
    let Some((member, at)) = checks.exactly_one(args, &["run", "read"]) else { return };
    check_names(args, checks);
    let Some(text) = at.text() else { return };
    let mut first = None;
    for spelling in Spelling::ALL {
        let refused = match Statement::parse(text, spelling) {
            Err(why) => Some((why, "one statement, with `:name` for each value")),
            Ok(statement) => {
                let checked = if member == "run" { statement.check_write() } else { statement.check_read() };
                let hint = match member {
                    "run" => "tables and sessions are for migrations and operators; a query is for `read`",
                    _ => "a statement that changes rows is for `run`",
                };
                let differs = || {
                    names_differ(args, &statement)
                        .map(|why| (why, "`:name` in the statement is `name` in `args`"))
                };
                checked.err().map(|why| (why, hint)).or_else(differs)
            }
        };
        match refused {
            None => return,
            refused => first = first.or(refused),
        }
    }
    if let Some((why, hint)) = first {
        checks.refuse(&at.at, why, hint);
    }
}

fn check_names(args: &Template, checks: &mut Checks<'_>) {
    let Some(Filled::Object(values)) = args.get("args").map(|args| &args.value) else { return };
    for (name, value) in values.iter().filter(|(name, _)| !crate::definitions::language::is_identifier(name))
    {
        let hint = "it has letters, digits and `_`, and does not begin with a digit";
        checks.refuse(&value.at, format!("`{name}` is no name of a placeholder"), hint);
    }
}

/// How the placeholders of a statement and the names of `args` differ; none if they agree.
pub(super) fn names_differ(args: &Template, statement: &Statement) -> Option<String> {
    let given: Vec<&str> = match args.get("args").map(|args| &args.value) {
        Some(Filled::Object(values)) => values.iter().map(|(name, _)| name.as_str()).collect(),
        _ => Vec::new(),
    };
    let missing = statement.names().iter().find(|name| !given.contains(&name.as_str()));
    if let Some(name) = missing {
        return Some(format!("`:{name}` has no value in `args`"));
    }
    let unused = given.into_iter().find(|name| !statement.names().iter().any(|known| known == name));
    unused.map(|name| {
        format!("`{name}` of `args` is not in the statement: write `:{name}` where its value belongs")
    })
}
