//! The protocol of a transactional step, written once for all databases:
//!
//! 1. Begin the user's transaction and read the row of the effect key. An outcome there is adopted, the body is not
//!    called. A later fence of the same run says that this is a zombie: it stops.
//! 2. Before that, if the run was claimed before: leave our fence there, in a small transaction of its own. An earlier
//!    owner that is still in its body can no longer commit, whatever becomes of our own try.
//! 3. The body. Its [`commit`](super::Tx::commit) writes key, fence and outcome last, guarded, and commits.
//! 4. If that was refused, broken off, or its answer lost: ask. A fence one attempt further is written first, which waits
//!    for a transaction that is still under way and shuts out one that is not decided; then the row tells.
//!
//! Nothing is recorded in the ledger before the body. Its beginning is recorded with its end.

use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::answered;
use super::gate::{Gate, Stage};
use super::{Committed, Tx, TxSource, TxStep};
use crate::clock::Clock;
use crate::engine::run::{BeginEffect, Requested};
use crate::fail::{Fail, FailExt as _, Result, fatal};
use crate::rules::entry::Class;
use crate::rules::fence::{FenceMark, FenceVerdict, decide};
use crate::rules::json::Payload;
use crate::rules::ledger::Ledger;
use crate::rules::path::Visit;
use crate::rules::step::{AfterCrash, NextMove, after_crash};
use crate::sabotage::{self, Bug};
use crate::sdk::attempt::Attempt;
use crate::sdk::contain::{BodyScope, contained, step_span};
use crate::sdk::ctx::read;
#[cfg(feature = "testing")]
use crate::sdk::step::probed;
use crate::sdk::step::{Step, doubt, finish, look};

/// Between two questions to a database that cannot be reached.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// How far an attempt has got without a look-up.
enum Tried {
    /// The outcome was there.
    Adopted(Payload),
    /// A later fence was there.
    Superseded(i64),
    /// The body has ended. The proof that it returned may be that of another transaction; the gate knows.
    Ran,
}

/// One step's way to its database.
struct Way<'a, S> {
    step: &'a Step,
    visit: &'a Visit,
    source: &'a S,
    find: String,
    put: String,
}

pub(super) async fn perform<T, S, B, Fut>(tx: TxStep<'_, S>, mut body: B) -> Result<T>
where
    T: Serialize + DeserializeOwned + Send,
    S: TxSource,
    B: FnMut(Tx<S>) -> Fut + Send,
    Fut: Future<Output = Result<Committed<T>>> + Send,
{
    let TxStep { step, source, table } = &tx;
    let (find, put) = (S::DIALECT.find(table).fatal()?, S::DIALECT.put(table).fatal()?);
    let visit = &step.visit()?;
    step.ctx.cell.asks(visit, || Requested::Step);
    let way = Way { step, visit, source: *source, find, put };
    loop {
        let (number, hidden) = match look(&step.ctx, visit) {
            ControlFlow::Break(settled) => return settled.and_then(|value| read(visit, &value)),
            ControlFlow::Continue(NextMove::Nothing) => pending().await,
            ControlFlow::Continue(NextMove::Attempt(number, at)) => {
                if let Some(at) = at {
                    step.ctx.cell.pause(visit, at, step.ctx.shielded).await?;
                }
                (number, None)
            }
            ControlFlow::Continue(NextMove::FindOut(number, class)) => (number + 1, Some(class)),
        };
        let how = BeginEffect { shielded: step.ctx.shielded || hidden.is_some(), intent: None };
        let _active = step.ctx.cell.begin(visit, how).await?;
        if hidden.is_some_and(|class| class != Class::Tx && after_crash(class) != AfterCrash::RunAgain) {
            // It began as a step of another class, whose effect is not in this table.
            doubt(step, visit, "its end was hidden by a crash, before the code made it a transactional step");
            continue;
        }
        let began = step.ctx.cell.now();
        let outcome = way.run(number, &mut body).await;
        let started = step.began(visit, number, Class::Tx, began);
        finish(step, visit, number, Some(started), outcome);
    }
}

impl<S: TxSource> Way<'_, S> {
    /// Makes one try, and finds out its outcome.
    async fn run<T, B, Fut>(&self, number: u32, body: &mut B) -> Result<Payload>
    where
        B: FnMut(Tx<S>) -> Fut + Send,
        Fut: Future<Output = Result<Committed<T>>> + Send,
    {
        let attempt = Attempt::new(&self.step.ctx, self.visit.clone(), number);
        let mark = mark_of(&attempt);
        let gate = Arc::new(Gate::default());
        let trying = self.try_once(&mark, attempt, &gate, body);
        let scope = BodyScope { ctx: &self.step.ctx, span: step_span(self.visit, number) };
        let tried = contained(scope, self.step.timeout, trying).await;
        #[cfg(feature = "testing")]
        probed(&self.step.ctx, self.visit, crate::testing::Moment::Returned).await;
        match (gate.close(), tried) {
            (Stage::Committed(outcome), tried) => {
                if let Err(fail) = tried {
                    tracing::warn!(step = %self.visit, %fail, "a transaction has committed, and then its body failed");
                }
                Ok(outcome)
            }
            (Stage::Lost(why), _) => self.ask(mark, why).await,
            (Stage::Committing, tried) => {
                let why = tried.err().unwrap_or_else(|| Fail::retryable("its commit was left alone"));
                self.ask(mark, why).await
            }
            (Stage::Open | Stage::Closed, Err(fail)) => Err(fail),
            (Stage::Open | Stage::Closed, Ok(Tried::Adopted(outcome))) => Ok(outcome),
            (Stage::Open | Stage::Closed, Ok(Tried::Superseded(fence))) => {
                Err(superseded(self.step, fence).await)
            }
            (Stage::Open | Stage::Closed, Ok(Tried::Ran)) => Err(forgotten()),
        }
    }

    async fn try_once<T, B, Fut>(
        &self,
        mark: &FenceMark,
        attempt: Attempt,
        gate: &Arc<Gate>,
        body: &mut B,
    ) -> Result<Tried>
    where
        B: FnMut(Tx<S>) -> Fut + Send,
        Fut: Future<Output = Result<Committed<T>>> + Send,
    {
        #[cfg(feature = "testing")]
        let _outside = self.outside();
        let open = match self.enter(mark).await? {
            Ok(open) => open,
            Err(over) => return Ok(over),
        };
        #[cfg(feature = "testing")]
        probed(&self.step.ctx, self.visit, crate::testing::Moment::Entered).await;
        let (mark, put, shared) = (mark.clone(), self.put.clone(), gate.clone());
        let body = pin!(body(Tx { open, attempt, mark, put, gate: shared }));
        tokio::select! {
            biased;
            () = gate.lost() => Ok(Tried::Ran),
            ended = body => ended.map(|_| Tried::Ran),
        }
    }

    /// Begins the body's transaction, unless there is nothing to do any more. Nothing has been done yet: a database that
    /// is silent may be asked again.
    async fn enter(&self, mark: &FenceMark) -> Result<std::result::Result<S::Open, Tried>> {
        loop {
            match answered(self.clock(), self.enter_once(mark)).await {
                Ok(entered) => return entered,
                Err(silent) => tracing::warn!(step = %self.visit, %silent, "asking on another connection"),
            }
        }
    }

    async fn enter_once(&self, mark: &FenceMark) -> Result<std::result::Result<S::Open, Tried>> {
        if self.step.ctx.cell.ledger(Ledger::claims) > 1 {
            self.raise(mark).await?;
        }
        let mut open = self.source.begin().await?;
        let held = S::find(&mut open, &self.find, &mark.key).await?;
        let held = held.filter(|_| !sabotage::commits(Bug::IgnoreFenceTable));
        let fence = held.as_ref().map_or(0, |held| held.fence);
        let over = match decide(mark, held) {
            FenceVerdict::Run => return Ok(Ok(open)),
            FenceVerdict::Adopt(outcome) => Tried::Adopted(adopted(&outcome)?),
            FenceVerdict::Superseded => Tried::Superseded(fence),
        };
        S::rollback(open).await?;
        Ok(Err(over))
    }

    fn clock(&self) -> &dyn Clock {
        self.step.ctx.cell.clock()
    }

    /// A test's clock waits until the database has answered.
    #[cfg(feature = "testing")]
    fn outside(&self) -> Option<crate::testing::crash::fate::OutsideWait> {
        self.step.ctx.cell.probe().map(crate::testing::crash::fate::Fate::outside)
    }

    /// Leaves a fence, so that no earlier try can commit any more.
    async fn raise(&self, mark: &FenceMark) -> Result<()> {
        let mut open = self.source.begin().await?;
        S::put(&mut open, &self.put, mark, None).await?;
        S::commit(open).await
    }

    /// Asks whether a try was committed, until there is an answer: `why` is how it failed if it did not take place.
    async fn ask(&self, mark: FenceMark, why: Fail) -> Result<Payload> {
        let clock = self.clock();
        // Between this try and the next: shuts out the former, and not the latter.
        let next = FenceMark { attempt: mark.attempt + 1, ..mark };
        loop {
            match answered(clock, self.ask_once(&next)).await {
                Ok(Ok(Tried::Adopted(outcome))) => return Ok(outcome),
                Ok(Ok(Tried::Superseded(fence))) => {
                    return Err(superseded(self.step, fence).await);
                }
                Ok(Ok(Tried::Ran)) => return Err(why),
                Ok(Err(fail)) => {
                    tracing::warn!(step = %self.visit, %fail, "it is unknown whether a transaction has committed; asking again");
                    clock.until(clock.now().after(PAUSE)).await;
                }
                Err(silent) => {
                    tracing::warn!(step = %self.visit, %silent, "it is unknown whether a transaction has committed; asking again");
                }
            }
        }
    }

    async fn ask_once(&self, mark: &FenceMark) -> Result<Tried> {
        #[cfg(feature = "testing")]
        let _outside = self.outside();
        self.raise(mark).await?;
        let mut open = self.source.begin().await?;
        let held = S::find(&mut open, &self.find, &mark.key).await?;
        S::rollback(open).await?;
        let fence = held.as_ref().map_or(0, |held| held.fence);
        Ok(match decide(mark, held) {
            FenceVerdict::Run => Tried::Ran,
            FenceVerdict::Adopt(outcome) => Tried::Adopted(adopted(&outcome)?),
            FenceVerdict::Superseded => Tried::Superseded(fence),
        })
    }
}

/// A later claim of this run has left its fence: this one is a zombie's try and does not go on. Unless there is no
/// such claim: then the store is older than the user's database, and waiting would be for ever.
pub(super) async fn superseded(step: &Step, fence: i64) -> Fail {
    match step.ctx.cell.stored_version().await {
        Some(version) if (version as i64) < fence => fatal(format_args!(
            "the fence table knows claim {fence} of this run, which its ledger does not have: was the store restored from a \
             backup?"
        )),
        _ => pending().await,
    }
}

pub(super) fn mark_of(attempt: &Attempt) -> FenceMark {
    FenceMark {
        key: attempt.key().to_owned(),
        run: attempt.run_id().to_string(),
        step: attempt.path(),
        fence: attempt.fence() as i64,
        attempt: attempt.number().into(),
    }
}

pub(super) fn adopted(outcome: &str) -> Result<Payload> {
    Payload::parse(outcome)
        .map_err(|error| fatal(format_args!("the outcome in the fence table is not one: {error}")))
}

fn forgotten() -> Fail {
    fatal("the body has ended without `tx.commit(..)`, and was rolled back")
}
