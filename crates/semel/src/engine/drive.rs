//! The driver of one run: polls its workflow, makes durable what it records, and puts the run to rest while it waits.
//!
//! A run has one driver and at most one commit under way; what is recorded meanwhile rides in the next one. The driver
//! polls commit and workflow in the same task, so that a step costs no detour through the runtime.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use super::Core;
use super::cell::{Caller, Cell};
use super::settle::PAUSE;
use super::signal::LastTurn;
use super::state::{Over, Phase, State};
use crate::clock::{Time, Until};
use crate::error::{Error, Result};
use crate::rules::commit::{Commit, Saved};
use crate::rules::entry::{Entry, FailureKind, PauseReason};
use crate::rules::json::Payload;
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::sdk::fail::Fail;
use crate::store::{Answer, Arrival, Store};

/// A wait that is over so soon is not worth two writes.
const NOT_WORTH_A_REST: Duration = Duration::from_millis(20);

/// So long effects that have begun may take to come to their end when the code turns out not to fit: they may wait for a branch
/// that does not go on.
const GRACE: Duration = Duration::from_secs(10);

/// A workflow under way.
pub(crate) type Execution = Pin<Box<dyn Future<Output = Result<Payload, Fail>> + Send>>;

/// What became of a driver's turn.
enum Turn {
    /// The run waits durably, at this version.
    Rests(u64),
    /// The driver is no longer needed.
    Over(Over),
}

/// The store, and what was asked of it.
struct Asked<'s> {
    store: &'s dyn Store,
    flight: Option<Flight<'s>>,
    reading: Option<Answer<'s, Vec<Arrival>>>,
}

/// A commit under way, with what is needed to send it again.
struct Flight<'s> {
    commit: Commit,
    answer: Answer<'s, Saved>,
}

impl Asked<'_> {
    fn send(&mut self, commit: Commit) {
        self.flight = Some(Flight { answer: self.store.commit(commit.clone()), commit });
    }
}

/// Drives one run.
pub(super) struct Driver {
    cell: Arc<Cell>,
    core: Arc<Core>,
    caller: Caller,
    execution: Option<Execution>,
    /// What user code says is said of this run.
    span: Span,
    alarm: Option<(Time, Until)>,
    /// The latest time that was due and has been told to those who wait for it.
    rung: Option<Time>,
    /// The turn that comes after everybody else's, asked for since the workflow was polled last.
    last_turn: Option<Arc<LastTurn>>,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, cell: Arc<Cell>, execution: Execution) -> Self {
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

    /// What it drives.
    pub(super) fn cell(&self) -> Arc<Cell> {
        self.cell.clone()
    }

    /// How much memory the execution takes, roughly: the future and what its ledger holds.
    pub(super) fn weight(&self) -> usize {
        let future = self.execution.as_ref().map_or(0, |execution| size_of_val(&**execution));
        future + self.cell.lock().ledger.weight()
    }

    /// Drives the run until it ends, is lost, or has to make room.
    pub(super) async fn drive(&mut self) {
        let core = self.core.clone();
        let mut asked = Asked { store: &*core.store, flight: None, reading: None };
        let over = loop {
            match poll_fn(|cx| self.poll_turn(&mut asked, cx)).await {
                Turn::Over(over) => break over,
                Turn::Rests(version) => {
                    // It may rest for months, and there may be many: whoever listens need not keep them all.
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

    /// Waits in memory for the next claim; gives how it ended if that never comes. Wake-ups of the workflow are left where
    /// they are until then: it may not go on before.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<Option<Over>> {
        self.cell.signal.enter(cx.waker());
        self.cell.signal.exit();
        if !self.cell.signal.take_nudged() {
            return Poll::Pending;
        }
        let mut state = self.cell.lock();
        // A claim comes first, also if the run is to go: it has a place by then, and is given back as a driven run is.
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

    fn poll_turn(&mut self, asked: &mut Asked<'_>, cx: &mut Context<'_>) -> Poll<Turn> {
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

    /// Does all that can be done now, once.
    fn poll_once(&mut self, asked: &mut Asked<'_>, cx: &mut Context<'_>) -> Option<Turn> {
        self.cell.signal.take_nudged();
        if !self.obey() {
            return Some(Turn::Over(Over::Gone));
        }
        self.poll_inbox(asked, cx);
        self.poll_alarm(cx);
        if let Some(turn) = self.poll_flight(asked, cx) {
            return Some(turn);
        }
        self.poll_execution();
        // Before `move_on`, which sees what was over by now; what is over from here on costs another round.
        self.cell.signal.take_eased();
        while asked.flight.is_none() && !self.cell.signal.is_woken() {
            self.move_on(asked);
            let sent = asked.flight.is_some();
            // What was just sent is polled right away: only so its answer wakes this task.
            if let Some(turn) = self.poll_flight(asked, cx) {
                return Some(turn);
            }
            // What comes after a part goes as soon as that is answered. If nothing was sent, it is not time yet.
            if !sent || !self.cell.lock().ledger.has_unsent() {
                break;
            }
        }
        self.set_alarm(cx);
        None
    }

    /// Does as it was told; false if the run is somebody else's.
    fn obey(&self) -> bool {
        let mut state = self.cell.lock();
        if state.orders.stop || state.orders.stop_now {
            state.phase = Phase::Stopping;
        }
        !state.orders.lost
    }

    fn poll_inbox(&mut self, asked: &mut Asked<'_>, cx: &mut Context<'_>) {
        if asked.reading.is_none()
            && let Some(from) = self.cell.lock().wants_inbox()
        {
            asked.reading = Some(asked.store.inbox(self.core.workspace, self.cell.id, from));
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

    /// The next time at which something has to be done here.
    fn set_alarm(&mut self, cx: &mut Context<'_>) {
        let state = self.cell.lock();
        if state.orders.look {
            return;
        }
        // What is being put to rest is called by the store.
        let running = self.execution.is_some() && state.ledger.run().status() == Status::Running;
        let at =
            earliest(earliest(state.waits.due(), state.ledger.deadline()), state.grace).filter(|_| running);
        if let Some(due) = at.filter(|at| *at <= self.core.now()) {
            // Once for each time: those who could not go on, while a commit is under way, cannot do so by another ring.
            if self.rung.replace(due) != Some(due) {
                state.waits.wake_due(self.core.now());
            }
            drop(state);
            self.alarm = None;
            return;
        }
        drop(state);
        // The alarm rings by the machine's clock, the times are the store's.
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
            // On its way to rest, where the next claim wakes it; or out of time, and nothing begins any more.
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
            Err(panic) => {
                let message = format!("the workflow panicked: {}", panic_text(&*panic));
                self.end(Err(Fail::new(FailureKind::Panic, message)));
            }
        }
    }

    /// The workflow has come to its end.
    fn end(&mut self, result: Result<Payload, Fail>) {
        self.drop_execution();
        let mut state = self.cell.lock();
        state.judge();
        state.end_replay();
        if state.diverged.is_some() {
            return;
        }
        let entry = match result {
            // It must not end over a doubt; whoever settles it lets it come here again.
            Ok(_) if state.doubt_what_was_left() => Entry::Paused { reason: PauseReason::InDoubt },
            Ok(value) => Entry::Completed { value },
            Err(fail) => match state.ledger.cancelling() {
                Some((reason, by)) if fail.is_cancelled() => {
                    Entry::Cancelled { reason: reason.to_owned(), by: by.to_owned() }
                }
                _ => Entry::Failed { error: fail.failure() },
            },
        };
        state.record(entry);
    }

    /// Nothing moves by itself now: decides what to do, and sends what was recorded.
    fn move_on(&mut self, asked: &mut Asked<'_>) {
        if self.execution.is_some() && self.cell.lock().seems_done() && !self.had_last_turn() {
            return;
        }
        let mut state = self.cell.lock();
        if self.execution.is_some() {
            state.end_replay();
            drop(state);
            // One that came during the replay could not be noted before.
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

    /// Code that only makes way for others (`yield_now`, a channel that was polled often) is woken after all of them. It
    /// gets that turn before it is said to have gone as far as it can.
    fn had_last_turn(&mut self) -> bool {
        self.last_turn.get_or_insert_with(|| LastTurn::ask(self.cell.clone())).has_come()
    }

    /// Records why the run stops here, if it does. Gives whether its execution is of no more use.
    fn leave(&self, state: &mut State, reading: bool) -> bool {
        let now = || self.core.now();
        if let Some(limit) = state.ledger.deadline().filter(|limit| *limit <= now()) {
            // Whatever its code is like.
            state.diverged = None;
            state.record(Entry::TimedOut { limit });
            return true;
        }
        if state.diverged.is_some() && state.active > 0 {
            state.grace.get_or_insert_with(|| now().after(GRACE));
        }
        let over = state.active == 0 || state.orders.stop_now || state.grace.is_some_and(|end| end <= now());
        if let Some(why) = state.diverged.take_if(|_| over) {
            tracing::error!(run = %state.ledger.run().id(), %why, "the code does not fit the ledger; the run is paused");
            // Through the ledger itself: a refusal here has nowhere else to go.
            if let Err(refused) = state.ledger.record(Entry::Paused { reason: PauseReason::Diverged(why) }) {
                tracing::error!(%refused, "a run that diverged cannot be paused");
            }
            return true;
        }
        if state.orders.stop_now || (state.orders.stop && state.active == 0 && !state.has_barriers()) {
            state.record(Entry::Waiting { due: Some(now()) });
            return true;
        }
        if state.ledger.is_in_doubt() && state.active == 0 && !state.has_barriers() {
            state.record(Entry::Paused { reason: PauseReason::InDoubt });
            return true;
        }
        if state.only_waits() && !state.orders.look && !reading {
            let due = earliest(state.waits.due(), state.ledger.deadline());
            if due.is_none_or(|due| due > now().after(NOT_WORTH_A_REST)) {
                state.record(Entry::Waiting { due });
            }
        }
        false
    }

    fn poll_flight(&mut self, asked: &mut Asked<'_>, cx: &mut Context<'_>) -> Option<Turn> {
        while let Some(flight) = &mut asked.flight {
            let Poll::Ready(answer) = flight.answer.as_mut().poll(cx) else { return None };
            let Flight { commit, .. } = asked.flight.take().expect("just polled");
            match answer {
                Ok(saved) => return self.saved(&saved, commit.seen),
                Err(Error::Concurrency { .. }) if sabotage::commits(Bug::LostGoesOn) => {
                    let version = commit.expected() + commit.count();
                    return self.saved(&Saved { version, ..Saved::default() }, commit.seen);
                }
                Err(Error::Concurrency { .. }) => return Some(Turn::Over(Over::Gone)),
                Err(error) => asked.flight = Some(self.again(commit, error)),
            }
        }
        None
    }

    fn saved(&mut self, saved: &Saved, seen: u64) -> Option<Turn> {
        let mut state = self.cell.lock();
        state.saved(saved.version, &saved.settled, seen);
        if state.ledger.run().state.version != saved.version {
            // More was recorded meanwhile, perhaps the end: that is still to be sent.
            return None;
        }
        match state.ledger.run().status() {
            Status::Waiting if self.execution.is_some() => Some(Turn::Rests(saved.version)),
            Status::Waiting | Status::Paused => Some(Turn::Over(Over::Gone)),
            status if status.is_terminal() => {
                let outcome = state.ledger.outcome().cloned().expect("an ended run has an outcome");
                Some(Turn::Over(Over::Ended(outcome)))
            }
            _ => None,
        }
    }

    /// Sends a commit again that was not answered, or finds out what became of it.
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

/// The span in which a run's code is polled. It costs next to nothing if nobody listens: its fields are not even looked at.
fn span_of(cell: &Cell) -> Span {
    // The name is taken out of the lock: a subscriber is user code.
    let workflow = || cell.lock().ledger.created().workflow.clone();
    tracing::info_span!("run", run = %cell.id, workflow = %workflow())
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "without a word",
    }
}

fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
