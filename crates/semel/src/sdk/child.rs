//! Children: runs that a run starts and hears of again.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::ctx::{Boxed, Ctx, Doing, read};
use super::fail::{Fail, Result, fatal};
use crate::engine::inbox::On;
use crate::engine::replay::watch::Asked;
use crate::engine::residents::Kin;
use crate::engine::state::State;
use crate::error::Error;
use crate::id::RunId;
use crate::rules::entry::{Entry, FailureKind, Outcome};
use crate::rules::json::{InvalidJson, Payload};
use crate::rules::ledger::Record;
use crate::rules::path::{Name, Visit};

/// A child that has not been started. It is when it is awaited.
#[must_use = "a child is started when it is awaited"]
pub struct ChildBegin<'a, Out> {
    ctx: &'a Ctx,
    named: Result<(Name, Name), Error>,
    input: Result<Payload, InvalidJson>,
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
        Self { ctx, named, input, key: None, indexed: false, out: PhantomData }
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
            let Self { ctx, named, input, key, indexed, .. } = self;
            let (workflow, version) = named.map_err(fatal)?;
            let input = input.map_err(fatal)?;
            let visit = ctx.visit_any(workflow.as_str(), key.as_deref(), indexed)?;
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
        let asked = || Asked::Child { workflow: workflow.clone(), input: input.clone() };
        self.cell.asks(&visit, asked);
        loop {
            if let Some(run) = self.child_at(&visit) {
                return Ok(Child { ctx: self.clone(), visit, run, out: PhantomData });
            }
            self.cell.check_cancelled(self.shielded)?;
            let start = |state: &mut State| -> Result<()> {
                state.check_cancelled(self.shielded)?;
                let run = RunId(self.cell.core.clock.uuid());
                let (workflow, version) = (workflow.clone(), version.clone());
                let started = state.ledger.start_child(visit.clone(), run, workflow, version, input.clone());
                if let Err(refused) = started {
                    state.diverge(refused.to_string());
                }
                Ok(())
            };
            self.cell.live_then(&visit, start).await?;
            self.cell.barrier().await;
        }
    }

    fn child_at(&self, visit: &Visit) -> Option<RunId> {
        let mut state = self.cell.lock();
        match state.ledger.record_at(visit) {
            None => None,
            Some(Record::Child { run, .. }) => *run,
            Some(_) => {
                state.diverge(format!("`{visit}` is a child in the code, but not in the ledger"));
                None
            }
        }
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
    /// Its run.
    pub fn id(&self) -> RunId {
        self.run
    }

    /// Waits for its end, whatever that is.
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
        if let Some(Record::Child { outcome: Some(outcome), .. }) =
            self.ctx.cell.lock().ledger.record_at(&self.visit)
        {
            return Ok(outcome.clone());
        }
        let _related = self.ctx.cell.core.residents.relate(self.ctx.cell.id, Kin::Run(self.run));
        let on = (Some(On::Child(self.visit.clone())), None);
        self.ctx
            .cell
            .wait(&self.visit, self.ctx.shielded, on, |state, _| {
                let (arrival, outcome) = state.inbox.child_end(&self.visit, self.run)?;
                let (child, recorded) = (self.visit.clone(), outcome.clone());
                state.record(Entry::ChildFinished { child, arrival, outcome: recorded });
                Some(outcome)
            })
            .await
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
            Err(fail.at(&mut self.ctx.cell.lock(), &self.visit))
        })
    }
}
