//! Durable waits of a workflow: for a time, a payload, a child or a shared result. The run needs no node meanwhile.

use std::future::poll_fn;
use std::task::Poll;

use super::cell::Cell;
use super::inbox::On;
use super::state::{CellState, Orders, Phase};
use crate::clock::Time;
use crate::engine::residents::Kin;
use crate::fail::Result;
use crate::id::RunId;
use crate::rules::entry::{Entry, Outcome};
use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::path::Visit;
use crate::sabotage::{self, Bug};

impl Cell {
    /// Waits until a time, without a record of it.
    pub(crate) async fn pause(&self, asks: &Visit, at: Time, shielded: bool) -> Result<()> {
        self.wait(asks, shielded, (None, Some(at)), |_, now| (now >= at).then_some(())).await
    }

    /// Waits for a timer that is set, and records that it has fired.
    pub(crate) async fn timer_fired(&self, timer: &Visit, at: Time, shielded: bool) -> Result<()> {
        let fired = |state: &mut CellState, now: Time| {
            let early = if sabotage::commits(Bug::TimersFireEarly) { 500 } else { 0 };
            (now.0 + early >= at.0).then(|| state.record(Entry::TimerFired { timer: timer.clone() }))
        };
        self.wait(timer, shielded, (None, Some(at)), fired).await
    }

    /// Waits for the next payload of a hook, but not beyond the timer, if one is given. None if the timer has fired.
    pub(crate) async fn receive(
        &self,
        hook: &Visit,
        token: &Token,
        timer: Option<(&Visit, Time)>,
        shielded: bool,
    ) -> Result<Option<Payload>> {
        let on = (Some(On::Token(token.clone())), timer.map(|(_, at)| at));
        let take = |state: &mut CellState, now: Time| {
            if let Some((arrival, payload)) = state.inbox.delivery(token) {
                let (hook, received) = (hook.clone(), payload.clone());
                state.record(Entry::HookReceived { hook, arrival, payload: received });
                return Some(Some(payload));
            }
            let (timer, _) = timer.filter(|(_, at)| now >= *at)?;
            state.record(Entry::TimerFired { timer: timer.clone() });
            Some(None)
        };
        self.wait(hook, shielded, on, take).await
    }

    /// Waits for the end of a child.
    pub(crate) async fn child_ended(&self, child: &Visit, run: RunId, shielded: bool) -> Result<Outcome> {
        let _related = self.core.residents.relate(self.id, Kin::Run(run));
        let take = |state: &mut CellState, _| {
            let (arrival, outcome) = state.inbox.child_end(child, run)?;
            let (child, recorded) = (child.clone(), outcome.clone());
            state.record(Entry::ChildFinished { child, arrival, outcome: recorded });
            Some(outcome)
        };
        self.wait(child, shielded, (Some(On::Child(child.clone())), None), take).await
    }

    /// Waits until the run that makes the result of a label has it, or has given up.
    pub(crate) async fn once_settled(
        &self,
        asks: &Visit,
        (scope, label): &(String, Label),
        shielded: bool,
    ) -> Result<()> {
        let _related = self.core.residents.relate(self.id, Kin::Once);
        // It may have been settled before this run was among those that are told.
        self.order(Orders::look_now);
        let take = |state: &mut CellState, _| {
            let arrival = state.inbox.settled(scope, label)?;
            state.record(Entry::Noted { arrival });
            Some(())
        };
        self.wait(asks, shielded, (Some(On::Once(scope.clone(), label.clone())), None), take).await
    }

    /// Waits durably for input, for a time, or for both. `check` is called whenever the wait may be over, and may record.
    async fn wait<T>(
        &self,
        asks: &Visit,
        shielded: bool,
        (on, due): (Option<On>, Option<Time>),
        mut check: impl FnMut(&mut CellState, Time) -> Option<T>,
    ) -> Result<T> {
        if self.lock().phase != Phase::Live {
            // A wait without a recorded end was ended by the cancel, and later entries may be recorded.
            self.check_cancelled(shielded)?;
        }
        self.live(Some(asks)).await;
        let mut slot = WaitSlot { cell: self, id: None };
        poll_fn(|cx| {
            let now = self.core.now();
            let mut state = self.lock();
            if state.held > 0 {
                // It never goes on: it has lost a race.
                return Poll::Pending;
            }
            if state.phase != Phase::Live || !state.may_act() {
                // The engine stops and the wait goes on elsewhere; or the run rests, and is not claimed again yet.
                state.keep_early(cx.waker());
                return Poll::Pending;
            }
            if let Some(over) = check(&mut state, now) {
                return Poll::Ready(Ok(over));
            }
            if let Err(cancelled) = state.check_cancelled(shielded) {
                return Poll::Ready(Err(cancelled));
            }
            match slot.id {
                Some(id) => state.waits.renew(id, cx.waker()),
                None => slot.id = Some(state.waits.enter(on.clone(), due, cx.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }
}

/// An entry among the waits of a run, removed when the waiting future goes on or is dropped.
struct WaitSlot<'a> {
    cell: &'a Cell,
    id: Option<u64>,
}

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.cell.lock().waits.leave(id);
        }
    }
}

/// The right to execute a label's body in this run.
pub(crate) struct OnceTurn<'a> {
    cell: &'a Cell,
    place: &'a (String, Label),
}

impl<'a> OnceTurn<'a> {
    /// Takes the right; none if another branch had it and has just given it back.
    pub(crate) async fn take(cell: &'a Cell, place: &'a (String, Label)) -> Option<Self> {
        let mut waited = false;
        poll_fn(|cx| {
            let mut state = cell.lock();
            match state.onces().get_mut(place) {
                Some(waiting) => {
                    waited = true;
                    // However often it is polled meanwhile, it is woken once.
                    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                        waiting.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
                None if waited => Poll::Ready(None),
                None => {
                    state.onces().insert(place.clone(), Vec::new());
                    Poll::Ready(Some(OnceTurn { cell, place }))
                }
            }
        })
        .await
    }
}

impl Drop for OnceTurn<'_> {
    fn drop(&mut self) {
        let waiting = self.cell.lock().onces().remove(self.place);
        waiting.into_iter().flatten().for_each(std::task::Waker::wake);
    }
}
