//! The driver of one run: polls its workflow, makes durable what it records, and puts the run to rest while it waits.
//!
//! A run has one driver and at most one commit in flight; entries recorded meanwhile are in the next one. The driver
//! polls commit and workflow in the same task, so that a step needs no trip through the runtime.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use super::Core;
use super::programs::WorkflowFuture;
use super::run::Cell;
use super::run::cell::Caller;
use super::run::signal::LastTurn;
use super::run::state::{CellState, Over, Phase};
use super::settle::PAUSE;
use crate::clock::{Time, Until};
use crate::error::{Error, Result};
use crate::fail::Fail;
use crate::rules::commit::{Commit, Saved};
use crate::rules::entry::{Entry, PauseReason};
use crate::rules::json::Payload;
use crate::rules::leave::{self, Leave, earliest};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::{Answer, Arrival, Store};

/// Grace period for running effects when the run diverges. Bounded, because an effect may be waiting for a branch
/// that is already stopped.
const GRACE: Duration = Duration::from_secs(10);

/// Result of one turn of a driver.
enum TurnOutcome {
    /// The run waits durably, at this version.
    Rests(u64),
    /// The driver is no longer needed.
    Over(Over),
}

/// The store, and the calls to it that are in flight.
struct StoreCalls<'s> {
    store: &'s dyn Store,
    flight: Option<Flight<'s>>,
    reading: Option<Answer<'s, Vec<Arrival>>>,
}

/// A commit in flight, with everything needed to send it again.
struct Flight<'s> {
    commit: Commit,
    answer: Answer<'s, Saved>,
}

impl StoreCalls<'_> {
    fn send(&mut self, commit: Commit) {
        self.flight = Some(Flight { answer: self.store.commit(commit.clone()), commit });
    }
}

/// Drives one run.
pub(super) struct Driver {
    cell: Arc<Cell>,
    core: Arc<Core>,
    caller: Caller,
    execution: Option<WorkflowFuture>,
    /// Span of the run, in which user code is polled.
    span: Span,
    alarm: Option<(Time, Until)>,
    /// The latest due time that waiting futures have been told of.
    rung: Option<Time>,
    /// A turn after all other tasks of the runtime, requested since the workflow was last polled.
    last_turn: Option<Arc<LastTurn>>,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, cell: Arc<Cell>, execution: WorkflowFuture) -> Self {
        cell.signal.woken();
        Self {
            span: span_of(&cell),
            caller: Caller::new(cell.clone()),
            cell,
            core,
            execution: Some(execution),
            alarm: None,
            rung: None,
            last_turn: None,
        }
    }

    /// The cell of the driven run.
    pub(super) fn cell(&self) -> Arc<Cell> {
        self.cell.clone()
    }

    /// Approximate memory of the execution in bytes: the future and its ledger.
    pub(super) fn weight(&self) -> usize {
        let future = self.execution.as_ref().map_or(0, |execution| size_of_val(&**execution));
        future + self.cell.lock().ledger.weight()
    }

    /// Drives the run until it ends, is lost, or has to make room.
    pub(super) async fn drive(&mut self) {
        let core = self.core.clone();
        let mut asked = StoreCalls { store: &*core.store, flight: None, reading: None };
        let over = loop {
            match poll_fn(|cx| self.poll_turn(&mut asked, cx)).await {
                TurnOutcome::Over(over) => break over,
                TurnOutcome::Rests(version) => {
                    // The run may rest for months, and there may be many: subscribers need not keep the spans of all
                    // of them.
                    self.span = Span::none();
                    self.core.rests(&self.cell, version, self.weight());
                    if let Some(over) = poll_fn(|cx| self.poll_rest(cx)).await {
                        self.drop_execution();
                        self.core.forget(&self.cell, over);
                        return;
                    }
                    self.span = span_of(&self.cell);
                }
            }
        };
        self.drop_execution();
        self.core.finished(&self.cell, over);
    }

    /// Waits in memory for the next claim; returns how it ended if that never comes. Wake-ups of the workflow are
    /// kept until then, because it may not go on before.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Over>> {
        self.cell.signal.enter(cx.waker());
        self.cell.signal.exit();
        if !self.cell.signal.take_nudged() {
            return Poll::Pending;
        }
        let mut state = self.cell.lock();
        // A claim comes first, even if the run is to leave memory: it has a slot by then, and is given back like a
        // driven run.
        let Some(claimed) = state.orders.claimed.take() else {
            let goes =
                state.orders.lost || state.orders.evicted || state.orders.stop || state.orders.stop_now;
            return if goes { Poll::Ready(Some(Over::Gone)) } else { Poll::Pending };
        };
        state.claimed(*claimed);
        state.waits.wake_due(self.core.now());
        drop(state);
        self.cell.signal.woken();
        Poll::Ready(None)
    }

    fn poll_turn(&mut self, asked: &mut StoreCalls<'_>, cx: &mut Context<'_>) -> Poll<TurnOutcome> {
        self.cell.signal.enter(cx.waker());
        loop {
            if let Some(turn) = self.poll_once(asked, cx) {
                self.cell.signal.exit();
                return Poll::Ready(turn);
            }
            if self.cell.signal.leave() {
                return Poll::Pending;
            }
        }
    }

    /// Does everything that can be done now, once.
    fn poll_once(&mut self, asked: &mut StoreCalls<'_>, cx: &mut Context<'_>) -> Option<TurnOutcome> {
        self.cell.signal.take_nudged();
        if !self.obey() {
            return Some(TurnOutcome::Over(Over::Gone));
        }
        self.poll_inbox(asked, cx);
        self.poll_alarm(cx);
        if let Some(turn) = self.poll_flight(asked, cx) {
            return Some(turn);
        }
        self.poll_execution();
        // Before `move_on`, which sees what has completed by now; whatever completes later costs another round.
        self.cell.signal.take_eased();
        while asked.flight.is_none() && !self.cell.signal.is_woken() {
            self.move_on(asked);
            let sent = asked.flight.is_some();
            // A call that was just sent is polled right away, so that its answer wakes this task.
            if let Some(turn) = self.poll_flight(asked, cx) {
                return Some(turn);
            }
            // The next part is sent as soon as the previous one is answered. If nothing was sent, it is not time yet.
            if !sent || !self.cell.lock().ledger.has_unsent() {
                break;
            }
        }
        self.set_alarm(cx);
        None
    }

    /// Carries out the engine's orders; false if another node has the run.
    fn obey(&self) -> bool {
        let mut state = self.cell.lock();
        if state.orders.stop || state.orders.stop_now {
            state.phase = Phase::Stopping;
        }
        !state.orders.lost
    }

    fn poll_inbox(&mut self, asked: &mut StoreCalls<'_>, cx: &mut Context<'_>) {
        if asked.reading.is_none()
            && let Some(from) = self.cell.lock().wants_inbox()
        {
            asked.reading = Some(asked.store.inbox(self.cell.workspace, self.cell.id, from));
        }
        if let Some(reading) = &mut asked.reading
            && let Poll::Ready(read) = reading.as_mut().poll(cx)
        {
            asked.reading = None;
            match read {
                Ok(arrivals) => self.cell.lock().take_in(arrivals),
                Err(error) => {
                    tracing::warn!(%error, run = %self.cell.id, "the inbox cannot be read; trying again");
                    self.cell.lock().unread();
                    self.alarm = Some(self.alarm_in(PAUSE));
                }
            }
        }
        self.cell.note_operators();
    }

    fn alarm_in(&self, pause: Duration) -> (Time, Until) {
        let at = self.core.clock.now().after(pause);
        (at, self.core.clock.until(at))
    }

    fn poll_alarm(&mut self, cx: &mut Context<'_>) {
        if let Some((_, alarm)) = &mut self.alarm
            && alarm.as_mut().poll(cx).is_ready()
        {
            self.alarm = None;
            self.cell.lock().waits.wake_due(self.core.now());
        }
    }

    /// Sets the alarm for the next time at which something has to be done here.
    fn set_alarm(&mut self, cx: &mut Context<'_>) {
        let state = self.cell.lock();
        if state.orders.look {
            return;
        }
        // A run that is being put to rest is woken by the store.
        let running = self.execution.is_some() && state.ledger.run().status() == Status::Running;
        let at =
            earliest(earliest(state.waits.due(), state.ledger.deadline()), state.grace).filter(|_| running);
        if let Some(due) = at.filter(|at| *at <= self.core.now()) {
            // Once for each time: futures that could not go on while a commit was in flight cannot do so on a second
            // ring.
            if self.rung.replace(due) != Some(due) {
                state.waits.wake_due(self.core.now());
            }
            drop(state);
            self.alarm = None;
            return;
        }
        drop(state);
        // The alarm uses the machine's clock; the times are those of the store.
        let at = at.map(|at| self.core.local(at));
        if at != self.alarm.as_ref().map(|(at, _)| *at) {
            self.alarm = at.map(|at| (at, self.core.clock.until(at)));
            self.poll_alarm(cx);
        }
    }

    fn poll_execution(&mut self) {
        if !self.cell.signal.take_woken() {
            return;
        }
        let overdue = |limit: Time| limit <= self.core.now() && !sabotage::commits(Bug::DeadlineIsIgnored);
        let state = self.cell.lock();
        let goes_on = state.may_act() || state.only_ends();
        if !goes_on || state.ledger.deadline().is_some_and(overdue) {
            // It is on its way to rest, where the next claim wakes it; or its time is up, and nothing begins any
            // more.
            return;
        }
        drop(state);
        let Some(execution) = &mut self.execution else { return };
        self.last_turn = None;
        let in_span = self.span.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            execution.as_mut().poll(&mut Context::from_waker(self.caller.waker()))
        }));
        drop(in_span);
        match polled {
            Ok(Poll::Pending) => {}
            Ok(Poll::Ready(result)) => self.end(result),
            Err(panic) => self.end(Err(Fail::panicked("the workflow", &*panic))),
        }
    }

    /// Records the end of the workflow.
    fn end(&mut self, result: Result<Payload, Fail>) {
        self.drop_execution();
        let mut state = self.cell.lock();
        state.judge();
        state.end_replay();
        if state.diverged.is_some() {
            return;
        }
        let in_doubt = result.is_ok() && state.doubt_what_was_left();
        let entry = leave::ending(result.map_err(|fail| fail.failure()), in_doubt, state.ledger.cancelling());
        state.record(entry);
        drop(state);
        if in_doubt {
            tracing::warn!(run = %self.cell.id, "the workflow has returned while an effect is in doubt; the run is paused");
        }
    }

    /// Nothing moves by itself now: decides what to do, and sends what was recorded.
    fn move_on(&mut self, asked: &mut StoreCalls<'_>) {
        if self.execution.is_some() && self.cell.lock().seems_done() && !self.had_last_turn() {
            return;
        }
        let mut state = self.cell.lock();
        if self.execution.is_some() {
            state.end_replay();
            drop(state);
            // A message that came during the replay could not be recorded before.
            self.cell.note_operators();
            state = self.cell.lock();
            if self.cell.signal.is_woken() {
                return;
            }
        }
        let running = state.ledger.run().status() == Status::Running;
        let mut leave = false;
        if running {
            leave = self.leave(&mut state, asked.reading.is_some());
        }
        if let Some(commit) = state.ledger.commit() {
            drop(state);
            asked.send(commit);
        } else {
            drop(state);
        }
        if leave {
            self.drop_execution();
        }
    }

    /// Code that only yields to other tasks (`yield_now`, a channel that was polled often) is woken after all of
    /// them. It gets that turn before it counts as unable to go on.
    fn had_last_turn(&mut self) -> bool {
        self.last_turn.get_or_insert_with(|| LastTurn::ask(self.cell.clone())).has_come()
    }

    /// Records why the run stops here, if it does. Returns whether its execution is no longer needed.
    fn leave(&self, state: &mut CellState, reading: bool) -> bool {
        let now = || self.core.now();
        match leave::decide(&state.facts(reading), now) {
            Leave::Stay => return false,
            Leave::BeginGrace => {
                state.grace = Some(now().after(GRACE));
                return false;
            }
            Leave::Rest(due) => {
                state.record(Entry::Waiting { due });
                return false;
            }
            Leave::TimeOut(limit) => {
                state.diverged = None;
                state.record(Entry::TimedOut { limit });
            }
            Leave::PauseDiverged => state.pause_diverged(),
            Leave::GiveBack => state.record(Entry::Waiting { due: Some(now()) }),
            Leave::PauseInDoubt => state.record(Entry::Paused { reason: PauseReason::InDoubt }),
        }
        true
    }

    fn poll_flight(&mut self, asked: &mut StoreCalls<'_>, cx: &mut Context<'_>) -> Option<TurnOutcome> {
        while let Some(flight) = &mut asked.flight {
            let Poll::Ready(answer) = flight.answer.as_mut().poll(cx) else { return None };
            let Flight { commit, .. } = asked.flight.take().expect("just polled");
            match answer {
                Ok(saved) => return self.saved(&saved, commit.seen),
                Err(Error::Concurrency { .. }) if sabotage::commits(Bug::LostGoesOn) => {
                    let version = commit.expected() + commit.count();
                    return self.saved(&Saved { version, ..Saved::default() }, commit.seen);
                }
                Err(Error::Concurrency { .. }) => return Some(TurnOutcome::Over(Over::Gone)),
                Err(error) => asked.flight = Some(self.again(commit, error)),
            }
        }
        None
    }

    fn saved(&mut self, saved: &Saved, seen: u64) -> Option<TurnOutcome> {
        let mut state = self.cell.lock();
        state.saved(saved.version, &saved.settled, seen);
        if state.ledger.run().state.version != saved.version {
            // More was recorded meanwhile, perhaps the end, and is still to be sent.
            return None;
        }
        match state.ledger.run().status() {
            Status::Waiting if self.execution.is_some() => Some(TurnOutcome::Rests(saved.version)),
            Status::Waiting | Status::Paused => Some(TurnOutcome::Over(Over::Gone)),
            status if status.is_terminal() => {
                let outcome = state.ledger.outcome().cloned().expect("an ended run has an outcome");
                Some(TurnOutcome::Over(Over::Ended(outcome)))
            }
            _ => None,
        }
    }

    /// Sends an unanswered commit again, or finds out whether it took place.
    fn again(&self, commit: Commit, error: Error) -> Flight<'static> {
        let (core, cell, sent) = (self.core.clone(), self.cell.clone(), commit.clone());
        let answer = async move { core.settle(&cell, sent, error).await };
        Flight { commit, answer: Box::pin(answer) }
    }

    fn drop_execution(&mut self) {
        if let Some(execution) = self.execution.take() {
            self.cell.lock().torn = true;
            let _in_span = self.span.enter();
            if catch_unwind(AssertUnwindSafe(|| drop(execution))).is_err() {
                tracing::error!(run = %self.cell.id, "a workflow panicked while it was dropped");
            }
        }
    }
}

/// The span in which a run's code is polled. Without a subscriber it costs almost nothing: its fields are not
/// evaluated.
fn span_of(cell: &Cell) -> Span {
    // The name is read outside the lock, because a subscriber is user code.
    let workflow = || cell.lock().ledger.created().workflow.clone();
    tracing::info_span!("run", run = %cell.id, workflow = %workflow())
}
