//! Two-phase commit with the run's ledger as coordinator: presumed abort, and the decision is an entry.
//!
//! 1. For each database in order: begin, read the row of the effect key, run the body, put the mark with the branch's outcome,
//!    and prepare. The mark is the same as that of a transactional step, under the same guard.
//! 2. If anything fails before all are prepared, all are rolled back: an ordinary failed attempt.
//! 3. The decision is recorded inside the block's path, and waited for until it is durable. This is the commit point: a zombie's
//!    entry is refused by the ledger's version, so it never gets beyond here.
//! 4. Each branch is committed, for as long as it takes. What a database does not know any more is looked for.
//! 5. The end of the block is recorded.
//!
//! After a crash with a decision: 4. Without one: what earlier attempts have prepared is rolled back (`recover`), then 1.

use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::flight::InFlight;
use super::part::{Member, Vote, Voting, check};
use super::recover::{Cleared, Recovery, Survey};
use super::resource::Resource;
use crate::clock::Time;
use crate::engine::run::{BeginEffect, Requested};
use crate::fail::{Fail, Result, fatal};
use crate::rules::branch::{BranchName, CommitDecision, CommitLook, decision_visits};
use crate::rules::entry::{Class, Entry};
use crate::rules::fence::FenceMark;
use crate::rules::json::Payload;
use crate::rules::ledger::{Ledger, VisitRecord};
use crate::rules::path::Visit;
use crate::rules::step::{AfterCrash, NextMove, after_crash};
use crate::sabotage::{self, Bug};
use crate::sdk::attempt::Attempt;
use crate::sdk::contain::{BodyScope, contained, step_span};
use crate::sdk::ctx::read;
#[cfg(feature = "testing")]
use crate::sdk::step::probed;
use crate::sdk::step::{Step, doubt, finish, look};
use crate::sdk::tx::perform::{PAUSE, mark_of, superseded};

/// State of an attempt before its decision.
enum Attempted {
    /// All branches are prepared, or have committed already: the branch, if there is one to commit, and the outcome.
    Ready(Vec<(Option<BranchName>, Payload)>),
    /// A later claim has been there.
    Superseded(i64),
    /// It cannot be known whether an earlier attempt has committed.
    Doubt(String),
}

/// A block on its way.
struct Block<'b> {
    step: &'b Step,
    visit: &'b Visit,
    all: Vec<Arc<dyn Resource>>,
}

pub(super) async fn perform<'a>(
    step: Step,
    mut parts: Vec<Box<dyn Member<'a> + 'a>>,
) -> Result<Vec<Payload>> {
    check(&parts)?;
    if parts.len() == 1
        && let Some(only) = parts.pop()
    {
        return only.alone(step).await;
    }
    let all = parts.iter().map(|part| part.resource()).collect::<Result<Vec<_>>>()?;
    let visit = &step.visit()?;
    step.ctx.cell.asks(visit, || Requested::Step);
    let block = Block { step: &step, visit, all };
    loop {
        let (number, mends, begun) = match look(&step.ctx, visit) {
            ControlFlow::Break(settled) => return settled.and_then(|value| read(visit, &value)),
            ControlFlow::Continue(NextMove::Nothing) => pending().await,
            ControlFlow::Continue(NextMove::Attempt(number, at)) => {
                if let Some(at) = at {
                    step.ctx.cell.pause(visit, at, step.ctx.shielded).await?;
                }
                // A later attempt has a time, unless an operator has said that the one before did not take place.
                (number, number > 1 && at.is_none(), None)
            }
            ControlFlow::Continue(NextMove::FindOut(number, class)) => (number, false, Some(class)),
        };
        let how = BeginEffect { shielded: step.ctx.shielded || begun.is_some(), intent: None };
        let _active = step.ctx.cell.begin(visit, how).await?;
        match begun {
            None => block.run(number, mends, &mut parts).await,
            Some(class) => match block.decision(number) {
                Some(decision) => {
                    block.let_sessions_end().await;
                    block.carry_out(decision).await;
                }
                None if class == Class::Tx || after_crash(class) == AfterCrash::RunAgain => {
                    block.run(number + 1, false, &mut parts).await;
                }
                None => {
                    let why = "its end was hidden by a crash, before the code made it a transaction over several databases";
                    doubt(&step, visit, why);
                }
            },
        }
    }
}

impl Block<'_> {
    fn recovery(&self) -> Recovery<'_> {
        Recovery { ctx: &self.step.ctx, clock: self.step.ctx.cell.clock(), all: &self.all }
    }

    /// Makes one attempt, and records its outcome.
    async fn run<'a>(&self, number: u32, mends: bool, parts: &mut [Box<dyn Member<'a> + 'a>]) {
        let began = self.step.ctx.cell.now();
        let attempt = Attempt::new(&self.step.ctx, self.visit.clone(), number);
        let mark = mark_of(&attempt);
        let flight = InFlight::new(&self.step.ctx, &self.all);
        let scope = BodyScope { ctx: &self.step.ctx, span: step_span(self.visit, number) };
        let trying = self.try_once(&attempt, mends, &flight, parts);
        let tried = contained(scope, self.step.timeout, trying).await;
        #[cfg(feature = "testing")]
        probed(&self.step.ctx, self.visit, crate::testing::Moment::Returned).await;
        let started = self.step.began(self.visit, number, Class::Tx, began);
        match tried {
            Ok(Attempted::Ready(branches)) => match self.record_decision(&attempt, branches, started.clone())
            {
                Ok(Some(decision)) => {
                    if !sabotage::commits(Bug::DecisionIsNotAwaited) {
                        self.step.ctx.cell.written().await;
                    }
                    flight.land();
                    self.carry_out(decision).await;
                }
                // The code does not fit the ledger, and nothing is decided any more: nothing is recorded either.
                Ok(None) => drop(self.abort(mark, &flight).await),
                Err(fail) => {
                    let fail = self.abort(mark, &flight).await.unwrap_or(fail);
                    finish(self.step, self.visit, number, Some(started), Err(fail));
                }
            },
            Ok(Attempted::Doubt(why)) => {
                self.step.ctx.cell.record_end([started]);
                doubt(self.step, self.visit, &why);
            }
            Ok(Attempted::Superseded(fence)) => {
                let fail = superseded(self.step, fence).await;
                finish(self.step, self.visit, number, Some(started), Err(fail));
            }
            Err(fail) => {
                let fail = self.abort(mark, &flight).await.unwrap_or(fail);
                finish(self.step, self.visit, number, Some(started), Err(fail));
            }
        }
    }

    async fn try_once<'a>(
        &self,
        attempt: &Attempt,
        mends: bool,
        flight: &InFlight,
        parts: &mut [Box<dyn Member<'a> + 'a>],
    ) -> Result<Attempted> {
        let mark = mark_of(attempt);
        let known = match self.survey(&mark, mends).await? {
            Survey::Clear(known) => known,
            Survey::Superseded(fence) => return Ok(Attempted::Superseded(fence)),
            Survey::Doubt(why) => return Ok(Attempted::Doubt(why)),
        };
        #[cfg(feature = "testing")]
        probed(&self.step.ctx, self.visit, crate::testing::Moment::Entered).await;
        let mut ready = Vec::new();
        for ((i, part), known) in parts.iter_mut().enumerate().zip(known) {
            if let Some(outcome) = known {
                ready.push((None, outcome));
                continue;
            }
            let name = name_of(&mark, i, attempt);
            let _outside = attempt.outside();
            let prepares = || flight.begin(i, &name);
            let voting = Voting {
                attempt: attempt.clone(),
                mark: mark.clone(),
                name: name.clone(),
                prepares: &prepares,
            };
            match part.vote(voting).await? {
                Vote::Prepared(outcome) => ready.push((Some(name), outcome)),
                Vote::Superseded(fence) => return Ok(Attempted::Superseded(fence)),
                Vote::WasThere => {
                    return Err(Fail::retryable(
                        "an outcome is there already; looking at all databases first",
                    ));
                }
            }
        }
        Ok(Attempted::Ready(ready))
    }

    /// What earlier attempts have left. The first attempt of a run under its first claim has nothing before it.
    async fn survey(&self, mark: &FenceMark, mends: bool) -> Result<Survey> {
        let cell = &self.step.ctx.cell;
        let is_first = mark.attempt == 1
            && cell.ledger(|ledger| ledger.claims() == 1 && ledger.run().new.lineage == ledger.run().id());
        match is_first {
            true => Ok(Survey::Clear(vec![None; self.all.len()])),
            false => self.recovery().survey(mark, mends).await,
        }
    }

    /// Records the decision to commit, together with the beginning of the step. None if the code does not fit the ledger.
    fn record_decision(
        &self,
        attempt: &Attempt,
        branches: Vec<(Option<BranchName>, Payload)>,
        started: Entry,
    ) -> Result<Option<CommitDecision>> {
        let decision = CommitDecision::new(attempt.key(), attempt.number(), branches);
        let Some(at) = self.free_place(attempt.number()) else { return Ok(None) };
        let value = Payload::of(&decision).map_err(fatal)?;
        let cell = &self.step.ctx.cell;
        cell.record([started, Entry::Recorded { at: at.clone(), value, failed: None }]);
        Ok(cell.ledger(|ledger| ledger.record_at(&at).is_some()).then_some(decision))
    }

    /// Where the decision about an attempt can be recorded.
    fn free_place(&self, number: u32) -> Option<Visit> {
        let cell = &self.step.ctx.cell;
        decision_visits(self.visit, number).find(|at| cell.ledger(|ledger| ledger.record_at(at).is_none()))
    }

    /// The decision about an attempt, if there is one under this run's keys.
    fn decision(&self, number: u32) -> Option<CommitDecision> {
        let cell = &self.step.ctx.cell;
        let key = cell.ledger(|ledger: &Ledger| ledger.effect_key(self.visit, "").to_string());
        let at = |at: Visit| {
            let value = cell.ledger(|ledger| match ledger.record_at(&at) {
                Some(VisitRecord::Value(value)) => Some(value.clone()),
                _ => None,
            })?;
            let decision: CommitDecision = value.read().ok()?;
            decision.is_of(&key, number).then_some(decision)
        };
        decision_visits(self.visit, number).find_map(at)
    }

    /// Rolls back what may be prepared, until that is certain: an attempt that has failed must not leave locks. Gives another
    /// failure if this one is not the run's owner any more.
    async fn abort(&self, mark: FenceMark, flight: &InFlight) -> Option<Fail> {
        // Between this attempt and the next: shuts out the former, and not the latter.
        let next = FenceMark { attempt: mark.attempt + 1, ..mark };
        let clock = self.step.ctx.cell.clock();
        for (i, branch) in flight.begun() {
            loop {
                match self.recovery().clear(i, &next).await {
                    Ok(Cleared::Done) => break,
                    Ok(Cleared::Superseded(fence)) => {
                        return Some(superseded(self.step, fence).await);
                    }
                    Err(fail) => {
                        tracing::warn!(step = %self.visit, %branch, %fail, "a branch is not rolled back yet; trying again");
                        clock.until(clock.now().after(PAUSE)).await;
                    }
                }
            }
        }
        flight.land();
        None
    }

    /// The process that has prepared may have died a moment ago: its sessions let go of its branches before they are listed. A
    /// database that does not answer is asked again when its branch is committed.
    async fn let_sessions_end(&self) {
        for resource in &self.all {
            if let Err(fail) = self.recovery().list(&**resource).await {
                tracing::debug!(step = %self.visit, %fail, "prepared branches are not listed yet");
            }
        }
    }

    /// Commits the branches of a decision, and records the end. A database that is away delays only its own branch.
    async fn carry_out(&self, decision: CommitDecision) {
        let clock = self.step.ctx.cell.clock();
        let branches = decision.branches().into_iter().enumerate();
        let mut open: Vec<(usize, BranchName)> =
            branches.filter_map(|(i, name)| Some((i, name?))).filter(|(i, _)| *i < self.all.len()).collect();
        let (mut gone, flight) = (Vec::new(), InFlight::new(&self.step.ctx, &self.all));
        for (i, branch) in &open {
            flight.begin(*i, branch);
        }
        if decision.commit.len() != self.all.len() {
            let of = format!("the decision is about {} databases", decision.commit.len());
            return doubt(self.step, self.visit, &format!("{of}, and the code has {}", self.all.len()));
        }
        loop {
            let mut left = Vec::new();
            for (i, branch) in open {
                match self.recovery().commit(i, &branch).await {
                    CommitLook::Done => {}
                    CommitLook::Again => left.push((i, branch)),
                    CommitLook::Gone => gone.push((i, branch)),
                }
            }
            open = left;
            if open.is_empty() {
                break;
            }
            tracing::warn!(step = %self.visit, left = open.len(), "decided branches are not committed yet; trying again");
            clock.until(clock.now().after(PAUSE)).await;
        }
        flight.land();
        if gone.is_empty() {
            let results = Payload::of(&decision.results).map_err(fatal);
            return finish(self.step, self.visit, decision.attempt, None, results);
        }
        doubt(self.step, self.visit, &rolled_back(&gone));
    }
}

fn name_of(mark: &FenceMark, i: usize, attempt: &Attempt) -> BranchName {
    BranchName {
        run: mark.run.clone(),
        key: mark.key.clone(),
        fence: mark.fence,
        attempt: mark.attempt,
        index: u32::try_from(i).unwrap_or(u32::MAX),
        // Names have whole seconds.
        since: Time(attempt.now().0 / 1000 * 1000),
    }
}

fn rolled_back(gone: &[(usize, BranchName)]) -> String {
    let names: Vec<String> = gone.iter().map(|(i, name)| format!("{name} (database {})", i + 1)).collect();
    format!(
        "it was decided to commit, but these branches are neither prepared nor committed: they were rolled back by hand: {}",
        names.join(", ")
    )
}
