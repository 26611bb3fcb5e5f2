//! What `sql`, `publish` and `transaction` have in common: statements whose outcome is committed with them.

use std::sync::Arc;
use std::time::Duration;

use semel::rules::json::Payload;
use semel::tx::TxStep;
use semel::{Attempt, Ctx, Result, fatal};
use serde_json::{Value as Json, json};

use super::connection::{named, target};
use super::{Kind, TaskCall, TaskEnd, publish, sql};
use crate::connections::{Connection, Connections, DatabaseTarget, RESULT, TIMEOUT};
use crate::databases::queue::{self, CommitWay};
use crate::databases::{Bound, Guarded, ResultBounds, SqlSource, Statement};
use crate::definitions::language::DefinedStep;
use crate::definitions::template::Template;

/// Tasks that can be steps of a `transaction`.
pub(crate) const STATEMENTS: [&str; 2] = ["sql", "publish"];

/// Kinds of connections that are databases.
pub(super) const DATABASES: &[&str] = &["postgres", "sqlite", "mysql"];

/// What bounds the statements of a step.
#[derive(Clone, Debug)]
pub(crate) struct StatementLimits {
    pub(crate) fence_table: String,
    /// Maximum time of an attempt.
    pub(crate) timeout: Duration,
    pub(crate) bounds: ResultBounds,
}

impl StatementLimits {
    /// The limits of a step that uses this connection.
    pub(crate) fn new(step: &DefinedStep, connection: &Connection, target: &DatabaseTarget) -> Self {
        let bounds = ResultBounds { bytes: connection.max_result, redactor: target.redactor.clone() };
        let timeout = step.timeout.unwrap_or(connection.timeout);
        Self { fence_table: target.fence_table.clone(), timeout, bounds }
    }

    /// The limits of a step whose connection cannot be used: it comes to no statement.
    pub(crate) fn missing() -> Self {
        let bounds = ResultBounds { bytes: RESULT, redactor: Arc::default() };
        Self { fence_table: semel::tx::TABLE.to_owned(), timeout: TIMEOUT, bounds }
    }
}

/// Type of the pool where the connection of a database is missing: it is never asked for a connection, so any type would do.
pub(crate) type AnyPool = semel::tx::deadpool_postgres::Pool;

/// A connection that is a database.
pub(crate) struct FoundDatabase(Arc<Connection>);

impl FoundDatabase {
    pub(crate) fn parts(&self) -> (&Connection, &DatabaseTarget) {
        (&self.0, self.0.target().expect("it was looked at when it was found"))
    }
}

/// The database with this name, or why there is none.
pub(crate) async fn find(ctx: &Ctx, connections: &Connections, name: &str) -> Result<FoundDatabase, String> {
    let connection = named(ctx, connections, name).await;
    target::<DatabaseTarget>(&connection, DATABASES)?;
    connection.map(FoundDatabase)
}

/// A step of the engine that commits its outcome with its statements.
pub(crate) fn begin<'s, S: SqlSource>(
    ctx: &Ctx,
    step: &DefinedStep,
    source: &'s Guarded<S>,
    limits: &StatementLimits,
) -> TxStep<'s, Guarded<S>> {
    begin_as(ctx, &step.name, step, source, limits)
}

/// The same under another name than that of the step.
pub(crate) fn begin_as<'s, S: SqlSource>(
    ctx: &Ctx,
    name: &str,
    step: &DefinedStep,
    source: &'s Guarded<S>,
    limits: &StatementLimits,
) -> TxStep<'s, Guarded<S>> {
    let tx = ctx.tx(name, source).table(&*limits.fence_table).timeout(limits.timeout);
    match step.retry {
        Some(retry) => tx.retry(retry),
        None => tx,
    }
}

/// A statement whose arguments are known.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) bound: Bound,
    /// Number of rows that the author expects.
    expect: Option<u64>,
    /// The value of the step, if it is not the result of the statement.
    value: Option<Payload>,
}

impl Planned {
    /// The statement of a task, with its evaluated arguments; `key` is its effect key, `way` how it is committed.
    pub(crate) fn new<S: SqlSource>(kind: &Kind, args: &Json, key: &str, way: CommitWay) -> Result<Self> {
        if kind.name == publish::KIND.name {
            let subject = publish::subject_of_row(args)?;
            let bound = queue::put(S::DIALECT, way, key, subject, &args["data"]);
            return Ok(Self {
                bound,
                expect: None,
                value: Some(Payload::of(&json!({"id": key})).map_err(fatal)?),
            });
        }
        let refused = |why: String| fatal(why).with_code("SQL");
        let (text, is_write) = match (args["run"].as_str(), args["read"].as_str()) {
            (Some(run), _) => (run, true),
            (None, read) => (read.unwrap_or_default(), false),
        };
        let statement = Statement::parse(text, S::SPELLING).map_err(refused)?;
        let checked = if is_write { statement.check_write() } else { statement.check_read() };
        checked.map_err(refused)?;
        let bound = Bound::new(&statement, args.get("args").unwrap_or(&Json::Null));
        Ok(Self { bound, expect: args["expect"].as_u64(), value: None })
    }

    /// Executes it in an open transaction; an error rolls all of it back.
    pub(crate) async fn execute<S: SqlSource>(
        self,
        conn: &mut S::Conn,
        bounds: &ResultBounds,
    ) -> Result<Payload> {
        let result = S::execute(conn, self.bound, bounds).await?.expect(self.expect)?;
        Ok(self.value.unwrap_or(result.value))
    }

    /// Executes it as a query of its own.
    pub(crate) async fn read<S: SqlSource>(
        self,
        source: &Guarded<S>,
        bounds: &ResultBounds,
    ) -> Result<Payload> {
        Ok(source.read(self.bound, bounds).await?.expect(self.expect)?.value)
    }
}

/// Executes one statement as a step of its own.
pub(super) async fn write<S: SqlSource>(
    call: TaskCall<'_>,
    kind: &Kind,
    source: &Guarded<S>,
    limits: &StatementLimits,
) -> Result<TaskEnd> {
    let value = begin(call.ctx, call.step, source, limits).run(async |mut tx| {
        let attempt = tx.attempt().clone();
        let planned =
            Planned::new::<Guarded<S>>(kind, &call.args_of(&attempt)?, attempt.key(), CommitWay::Alone)?;
        let value = planned.execute::<Guarded<S>>(&mut tx, &limits.bounds).await?;
        let kept = call.keep(&attempt, value, limits.bounds.bytes)?;
        tx.commit(kept).await
    });
    Ok(TaskEnd::Kept(value.await?))
}

/// Executes a query as a step of its own: it can be repeated.
pub(super) async fn read<S: SqlSource>(
    call: TaskCall<'_>,
    source: &Guarded<S>,
    limits: &StatementLimits,
) -> Result<TaskEnd> {
    let value = call.begin_untimed().timeout(limits.timeout).run(async |attempt: Attempt| {
        let _outside = attempt.outside();
        let planned = Planned::new::<Guarded<S>>(
            &sql::KIND,
            &call.args_of(&attempt)?,
            attempt.key(),
            CommitWay::Alone,
        )?;
        let value = planned.read(source, &limits.bounds).await?;
        call.keep(&attempt, value, limits.bounds.bytes)
    });
    Ok(TaskEnd::Kept(value.await?))
}

/// What a database has against a statement of a task; none if it takes it. Only texts without holes are looked at.
pub(crate) fn refused(args: &Template, target: &DatabaseTarget) -> Option<String> {
    let (text, is_write) = match (args.get("run"), args.get("read")) {
        (Some(run), _) => (run.text()?, true),
        (None, read) => (read?.text()?, false),
    };
    let statement = match Statement::parse(text, target.spelling()) {
        Ok(statement) => statement,
        Err(why) => return Some(why),
    };
    let checked = if is_write { statement.check_write() } else { statement.check_read() };
    checked.err().or_else(|| sql::names_differ(args, &statement))
}
