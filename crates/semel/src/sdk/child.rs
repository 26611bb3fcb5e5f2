//! Children: runs that a run starts and hears of again.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::ctx::{Boxed, Ctx, Doing, read};
use crate::engine::run::{Addition, Requested};
use crate::error::Error;
use crate::fail::{Fail, Result, fatal};
use crate::id::RunId;
use crate::rules::entry::{FailureKind, Outcome};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::ledger::VisitRecord;
use crate::rules::path::{Name, Visit};

/// A child that has not been started. It is when it is awaited.
#[must_use = "a child is started when it is awaited"]
pub struct ChildBegin<'a, Out> {
    ctx: &'a Ctx,
    named: Result<(Name, Name), Error>,
    input: Result<Payload, InvalidJson>,
    name: Option<String>,
    key: Option<String>,
    indexed: bool,
    out: PhantomData<fn() -> Out>,
}

impl<Out> fmt::Debug for ChildBegin<'_, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildBegin").field(&self.named).finish()
    }
}

impl<'a, Out> ChildBegin<'a, Out> {
    pub(super) fn new(
        ctx: &'a Ctx,
        named: Result<(Name, Name), Error>,
        input: Result<Payload, InvalidJson>,
    ) -> Self {
        Self { ctx, named, input, name: None, key: None, indexed: false, out: PhantomData }
    }

    /// Names the child's place in this run; the name of its workflow if nothing is said.
    ///
    /// ```
    /// # use semel::{Ctx, Result, WorkflowName};
    /// # async fn workflow(ctx: Ctx, chosen: String) -> Result<serde_json::Value> {
    /// // The path is `ship`, whichever workflow was chosen.
    /// let child = ctx.child(WorkflowName::new(&chosen), "ink").named("ship").await?;
    /// child.result().await
    /// # }
    /// ```
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Tells this child from others of the same workflow: its path is `workflow[key]`.
    pub fn key(mut self, key: impl fmt::Display) -> Self {
        self.key = Some(key.to_string());
        self
    }

    /// Counts the children of this workflow: the second one is `workflow#2`.
    pub fn indexed(mut self) -> Self {
        self.indexed = true;
        self
    }
}

impl<'a, Out: Send + 'a> IntoFuture for ChildBegin<'a, Out> {
    type Output = Result<Child<Out>>;
    type IntoFuture = Boxed<'a, Child<Out>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { ctx, named, input, name, key, indexed, .. } = self;
            let (workflow, version) = named.map_err(fatal)?;
            let input = input.map_err(fatal)?;
            let visit = match &name {
                Some(name) => ctx.visit(name, key.as_deref(), indexed)?,
                None => ctx.visit_any(workflow.as_str(), key.as_deref(), indexed)?,
            };
            ctx.begin_child(visit, &workflow, &version, &input).await
        })
    }
}

impl Ctx {
    /// Starts a child at a visit, or finds it there.
    pub(super) async fn begin_child<Out>(
        &self,
        visit: Visit,
        workflow: &Name,
        version: &Name,
        input: &Payload,
    ) -> Result<Child<Out>> {
        let asked = || Requested::Child { workflow: workflow.clone(), input: input.clone() };
        self.cell.asks(&visit, asked);
        loop {
            if let Some(run) = self.child_at(&visit) {
                return Ok(Child { ctx: self.clone(), visit, run, out: PhantomData });
            }
            let start = || {
                let (child, run) = (visit.clone(), RunId(self.cell.clock().uuid()));
                let (workflow, version, input) = (workflow.clone(), version.clone(), input.clone());
                Ok((Addition::Child { child, run, workflow, version, input }, ()))
            };
            self.cell.add_unless_cancelled(&visit, self.shielded, start).await?;
            self.cell.barrier().await;
        }
    }

    fn child_at(&self, visit: &Visit) -> Option<RunId> {
        let found = self.cell.recorded(visit, "a child", |record| match record {
            VisitRecord::Child { run, .. } => Some(*run),
            _ => None,
        });
        found.flatten()
    }
}

/// A child that has been started.
pub struct Child<Out> {
    ctx: Ctx,
    visit: Visit,
    run: RunId,
    out: PhantomData<fn() -> Out>,
}

impl<Out> fmt::Debug for Child<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Child({} {})", self.visit, self.run)
    }
}

impl<Out> Child<Out> {
    /// Id of the child run.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Waits until it has ended, and gives the outcome: a result, a failure or a cancel.
    ///
    /// ```
    /// # use semel::{Ctx, Result, rules::entry::Outcome};
    /// # async fn book(_: Ctx, part: String) -> Result<String> { Ok(part) }
    /// # async fn workflow(ctx: Ctx, (): ()) -> Result<bool> {
    /// let train = ctx.child(book, "train".to_owned()).await?;
    /// // Its failure is none of this run's.
    /// let booked = matches!(train.outcome().await?, Outcome::Completed(_));
    /// # Ok(booked)
    /// # }
    /// ```
    pub fn outcome(&self) -> Doing<'_, Outcome> {
        Doing::new(self.ended())
    }

    async fn ended(&self) -> Result<Outcome> {
        let Ctx { cell, shielded, .. } = &self.ctx;
        let recorded = cell.ledger(|ledger| match ledger.record_at(&self.visit) {
            Some(VisitRecord::Child { outcome, .. }) => outcome.clone(),
            _ => None,
        });
        match recorded {
            Some(outcome) => Ok(outcome),
            None => cell.child_ended(&self.visit, self.run, *shielded).await,
        }
    }
}

impl<Out: DeserializeOwned + Send> Child<Out> {
    /// Waits for its end and gives its result; any other end is an error.
    pub fn result(&self) -> Doing<'_, Out> {
        Doing::new(async move {
            let fail = match self.ended().await? {
                Outcome::Completed(value) => return read(&self.visit, &value),
                Outcome::Failed(failure) => Fail::recorded(&self.visit, &failure),
                Outcome::Cancelled(reason) => {
                    fatal(format_args!("{}: {} was cancelled: {reason}", self.visit, self.run))
                }
                Outcome::Purged(status) => fatal(format_args!(
                    "{}: {} has ended as {status}, and its result is no longer kept",
                    self.visit, self.run
                )),
                Outcome::TimedOut => {
                    let said = format_args!("{}: {} has timed out", self.visit, self.run).to_string();
                    Fail::new(FailureKind::Timeout, said)
                }
            };
            Err(fail.at(self.ctx.cell.hears(&self.visit)))
        })
    }
}
