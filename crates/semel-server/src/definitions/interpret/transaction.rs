//! `transaction`: statements that take place together. Those of one database are a transactional step with one commit; those of
//! several are a commit in two phases, with the ledger of the run as coordinator.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use semel::rules::json::Payload;
use semel::tx::{Branch, Ready};
use semel::{Attempt, Ctx, Result, fatal};

use super::broken::{Broken, too_large};
use super::frame::{Flow, Frame, Listed, StepValue};
use super::visible::Visible;
use crate::connections::{Connections, Database, TIMEOUT, on_database};
use crate::databases::queue::CommitWay;
use crate::databases::sqlite::SqliteFile;
use crate::databases::{Guarded, SqlSource};
use crate::definitions::expression::Data;
use crate::definitions::language::{DefinedStep, StepBody, databases};
use crate::definitions::template::Template;
use crate::tasks::database::{AnyPool, Planned, StatementLimits, begin, find};
use crate::tasks::{Kind, evaluated, not_evaluated};
use semel::error::failure_code;

/// A step of a transaction: its task with the arguments.
#[derive(Clone, Copy)]
struct InnerStep<'d> {
    step: &'d DefinedStep,
    kind: &'static Kind,
    args: &'d Template,
}

impl<'d> InnerStep<'d> {
    fn of(step: &'d DefinedStep) -> Option<Self> {
        match &step.body {
            StepBody::Task(kind, args) => Some(Self { step, kind, args }),
            _ => None,
        }
    }

    /// Name of the connection that it uses.
    fn on(&self) -> &'d str {
        self.args.get("on").and_then(Template::text).unwrap_or_default()
    }
}

impl<'d> Frame<'d> {
    /// Executes the statements; the value is an object by the names of the steps.
    pub(super) async fn transaction(&self, step: &'d DefinedStep, steps: &'d [DefinedStep]) -> Listed {
        let fresh = !self.ctx.is_replaying();
        let inner: Vec<_> = steps.iter().filter_map(InnerStep::of).collect();
        let end = match self.committed(step, steps, &inner).await {
            Ok(value) => Ok(Flow::Value(StepValue::of_payload(value))),
            Err(fail) => Err(Broken::new(fail, self.path_of(&step.name))),
        };
        Listed { end, fresh }
    }

    async fn committed(
        &self,
        step: &'d DefinedStep,
        steps: &'d [DefinedStep],
        inner: &[InnerStep<'d>],
    ) -> Result<Payload> {
        let connections = self.ctx.state::<Connections>();
        let names = databases(steps);
        let [name] = names[..] else { return self.on_several(step, inner, &names, &connections).await };
        let found = find(&self.ctx, &connections, name).await;
        let (connection, target) = match &found {
            Ok(found) => found.parts(),
            Err(why) => {
                let source = Guarded::<AnyPool>::missing(why.clone());
                return self.on_one(step, inner, &source, &StatementLimits::missing()).await;
            }
        };
        let limits = StatementLimits::new(step, connection, target);
        on_database!(target, connection, source => self.on_one(step, inner, &source, &limits).await)
    }

    /// One database: one commit has the rows of all steps, and the outcome.
    async fn on_one<S: SqlSource>(
        &self,
        step: &'d DefinedStep,
        inner: &[InnerStep<'d>],
        source: &Guarded<S>,
        limits: &StatementLimits,
    ) -> Result<Payload> {
        let value = begin(&self.ctx, step, source, limits).run(async |mut tx| {
            let attempt = tx.attempt().clone();
            let mut values = TransactionValues::new(&self.visible);
            for inner in inner {
                let Some(planned) = values.planned::<S>(*inner, &attempt, CommitWay::Alone)? else {
                    continue;
                };
                let value = planned.execute::<Guarded<S>>(&mut tx, &limits.bounds).await?;
                values.add(*inner, &attempt, value)?;
            }
            tx.commit(values.finish(limits.bounds.bytes)?).await
        });
        value.await
    }

    /// Several databases: the statements of each are a branch, in the order in which the databases are first named.
    async fn on_several(
        &self,
        step: &'d DefinedStep,
        inner: &[InnerStep<'d>],
        names: &[&'d str],
        connections: &Connections,
    ) -> Result<Payload> {
        let mut parts = Vec::new();
        for name in names {
            let steps: Vec<_> = inner.iter().copied().filter(|inner| inner.on() == *name).collect();
            parts.push(DatabasePart::find(&self.ctx, step, connections, name, steps).await);
        }
        let timeout = parts.iter().map(|part| part.limits.timeout).max().unwrap_or(TIMEOUT);
        // What earlier steps of this attempt have given. The first database begins anew.
        let visible = Mutex::new(self.visible.inside(Vec::new()));
        let shared = &visible;
        let mut all = self.ctx.tx_all(&*step.name).timeout(timeout).list::<BTreeMap<String, Payload>>();
        if let Some(retry) = step.retry {
            all = all.retry(retry);
        }
        for (index, part) in parts.iter().enumerate() {
            all = all.table(&*part.limits.fence_table);
            let begin = move || {
                let mut visible = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if index == 0 {
                    *visible = self.visible.inside(Vec::new());
                }
                TransactionValues { visible: visible.clone(), by_name: BTreeMap::new() }
            };
            match &part.source {
                PartSource::Postgres(source) => {
                    all.push(source, move |branch| part.branch(branch, begin()));
                }
                PartSource::Sqlite(source) => {
                    all.push(source, move |branch| part.branch(branch, begin()));
                }
                #[cfg(feature = "mysql")]
                PartSource::Mysql(source) => {
                    all.push(source, move |branch| part.branch(branch, begin()));
                }
            }
        }
        let by_name: BTreeMap<_, _> = all.run().await?.into_iter().flatten().collect();
        Payload::of(&by_name).map_err(|refused| fatal(refused).with_code(failure_code::TOO_LARGE))
    }
}

/// One of several databases of a transaction, with its steps.
struct DatabasePart<'d> {
    steps: Vec<InnerStep<'d>>,
    source: PartSource,
    limits: StatementLimits,
}

/// A database, whichever it is.
enum PartSource {
    Postgres(Guarded<AnyPool>),
    Sqlite(Guarded<SqliteFile>),
    #[cfg(feature = "mysql")]
    Mysql(Guarded<semel::tx::sqlx::MySqlPool>),
}

impl<'d> DatabasePart<'d> {
    async fn find(
        ctx: &Ctx,
        step: &DefinedStep,
        connections: &Connections,
        name: &str,
        steps: Vec<InnerStep<'d>>,
    ) -> Self {
        let found = match find(ctx, connections, name).await {
            Ok(found) => found,
            Err(why) => {
                let source = PartSource::Postgres(Guarded::missing(why));
                return Self { steps, source, limits: StatementLimits::missing() };
            }
        };
        let (connection, target) = found.parts();
        let source = match &target.database {
            Database::Postgres(pool) => PartSource::Postgres(target.guarded(pool, connection)),
            Database::Sqlite(file) => PartSource::Sqlite(target.guarded(file, connection)),
            #[cfg(feature = "mysql")]
            Database::Mysql(pool) => PartSource::Mysql(target.guarded(pool, connection)),
        };
        Self { steps, source, limits: StatementLimits::new(step, connection, target) }
    }

    /// Executes the statements of this database.
    async fn branch<S: SqlSource>(
        &self,
        mut branch: Branch<Guarded<S>>,
        mut values: TransactionValues,
    ) -> Result<Ready<Guarded<S>, BTreeMap<String, Payload>>> {
        let attempt = branch.attempt().clone();
        for inner in &self.steps {
            let Some(planned) = values.planned::<S>(*inner, &attempt, CommitWay::WithOthers)? else {
                continue;
            };
            let value = planned.execute::<Guarded<S>>(&mut branch, &self.limits.bounds).await?;
            values.add(*inner, &attempt, value)?;
        }
        values.check_size(self.limits.bounds.bytes)?;
        branch.ready(values.by_name)
    }
}

/// The values of the steps of one try, which later steps of the transaction see.
struct TransactionValues {
    visible: Visible,
    by_name: BTreeMap<String, Payload>,
}

impl TransactionValues {
    fn new(around: &Visible) -> Self {
        Self { visible: around.inside(Vec::new()), by_name: BTreeMap::new() }
    }

    /// What a step can read. Each has an effect key of its own.
    fn scope(&self, inner: InnerStep<'_>, attempt: &Attempt) -> Data {
        let key = attempt.key_for(&inner.step.name);
        self.visible.data().with("effect", Data::of_json(&serde_json::json!({"key": key})))
    }

    /// The statement of a step; none if its condition is false.
    fn planned<S: SqlSource>(
        &self,
        inner: InnerStep<'_>,
        attempt: &Attempt,
        way: CommitWay,
    ) -> Result<Option<Planned>> {
        if let Some(condition) = &inner.step.condition
            && !condition.is_true(&self.visible.data()).map_err(not_evaluated)?
        {
            return Ok(None);
        }
        let args = evaluated(inner.args, &self.scope(inner, attempt))?;
        Planned::new::<Guarded<S>>(inner.kind, &args, &attempt.key_for(&inner.step.name), way).map(Some)
    }

    /// Adds the value of a step, as its `keep` shapes it.
    fn add(&mut self, inner: InnerStep<'_>, attempt: &Attempt, value: Payload) -> Result<()> {
        let value = match &inner.step.keep {
            Some(keep) => {
                let scope = self.scope(inner, attempt).with("this", Data::of_payload(&value));
                too_large(&evaluated(keep, &scope)?)?
            }
            None => value,
        };
        self.visible.add(&inner.step.name, Data::of_payload(&value));
        self.by_name.insert(inner.step.name.clone(), value);
        Ok(())
    }

    /// The value of the transaction.
    fn finish(self, most: usize) -> Result<Payload> {
        self.check_size(most)?;
        Payload::of(&self.by_name).map_err(|refused| fatal(refused).with_code(failure_code::TOO_LARGE))
    }

    /// Refuses values that are larger than what is recorded of a step.
    fn check_size(&self, most: usize) -> Result<()> {
        match self.by_name.values().map(|value| value.text().len()).sum::<usize>() {
            size if size > most => {
                let why = format!(
                    "the result has {size} bytes, and at most {most} are recorded: shorten it with `keep`"
                );
                Err(fatal(why).with_code(failure_code::TOO_LARGE))
            }
            _ => Ok(()),
        }
    }
}
