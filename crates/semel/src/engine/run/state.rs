//! State of a run in memory: its ledger, its inbox, its orders, and what waits for what.
//!
//! This is data and its changes, all under the one lock of the run's [`Cell`](super::cell::Cell): nothing here waits,
//! reads a clock or calls user code. This module also judges whether the code fits the ledger.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::inbox::{Inbox, On};
use super::waits::Waits;
use crate::clock::Time;
use crate::fail::Fail;
use crate::rules::entry::{Entry, Outcome, PauseReason};
use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::leave::LeaveFacts;
use crate::rules::ledger::{HookState, Ledger, VisitRecord};
use crate::rules::path::{InvalidPath, Path, Visit};
use crate::rules::status::Status;
use crate::store::{Arrival, Claimed};

/// Phase of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Phase {
    /// Recorded results are given back.
    Replaying,
    /// Everything recorded is replayed: new work may begin.
    Live,
    /// The engine stops: nothing begins any more.
    Stopping,
    /// A dry replay: nothing new is done.
    Dry,
}

/// How a run left memory.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Over {
    /// The run has ended with this outcome.
    Ended(Outcome),
    /// Another node has it, or it waits in the store.
    Gone,
}

/// Orders of the rest of the engine to a driver.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "orders do not exclude each other")]
pub(in crate::engine) struct Orders {
    /// Something has arrived in the inbox.
    pub(in crate::engine) look: bool,
    /// Another node has the run.
    pub(in crate::engine) lost: bool,
    /// A run that rests in memory was claimed again.
    pub(in crate::engine) claimed: Option<Box<Claimed>>,
    /// A run that rests in memory makes room.
    pub(in crate::engine) evicted: bool,
    /// Begin nothing more, and give the run back when running effects have ended.
    pub(in crate::engine) stop: bool,
    /// Give the run back now.
    pub(in crate::engine) stop_now: bool,
}

impl Orders {
    /// Orders a look into the inbox.
    pub(in crate::engine) fn look_now(&mut self) {
        self.look = true;
    }
}

/// A future that waits for the end of the replay.
struct Parked {
    asks: Option<Visit>,
    waker: Waker,
}

/// A future that waits until a version is durable.
#[derive(Default)]
pub(in crate::engine) struct Barrier {
    version: Option<u64>,
    registered: Option<Waker>,
}

/// A request during the replay that is carried out afterwards.
pub(in crate::engine) enum Deferred {
    Open(Visit, Token),
    Close(Visit),
    /// The run does not follow a patch.
    Unpatched(Visit),
}

/// The part that the lock guards. It is held for moments only, and never while user code runs.
pub(in crate::engine) struct CellState {
    pub(in crate::engine) ledger: Ledger,
    pub(in crate::engine) inbox: Inbox,
    pub(in crate::engine) waits: Waits,
    pub(in crate::engine) phase: Phase,
    pub(in crate::engine) orders: Orders,
    /// Number of bodies that are being executed.
    pub(in crate::engine) active: usize,
    /// Why the code does not fit the ledger; none if it does.
    pub(in crate::engine) diverged: Option<String>,
    /// Until when running effects are waited for then.
    pub(in crate::engine) grace: Option<Time>,
    /// Greater than 0 while the polled code has lost a race: it gets recorded results, and does nothing new.
    pub(in crate::engine) held: usize,
    /// The engine is dropping the workflow, so its drops do not count as actions of the workflow.
    pub(in crate::engine) torn: bool,
    /// Version up to which everything is durable.
    durable: u64,
    /// One element, if the workflow does one thing after the other.
    barriers: SmallVec<[(u64, Waker); 1]>,
    /// Boxed: where thousands of runs take turns, the memory that each of them touches counts.
    seldom: Option<Box<RareState>>,
    pub(in crate::engine) over: Option<Over>,
    /// The run waits durably; another engine may claim it next.
    pub(in crate::engine) resting: bool,
    pub(in crate::engine) listeners: Vec<Waker>,
}

/// Parts of the state that most runs never need.
#[derive(Default)]
struct RareState {
    parked: Vec<Parked>,
    /// Futures that wanted to go on while the run was not claimed.
    early: Vec<Waker>,
    deferred: Vec<Deferred>,
    onces: Onces,
    heard: Heard,
}

/// Recorded failures that the workflow has been given, as long as it holds them.
#[derive(Default)]
struct Heard {
    failures: Vec<(u64, Weak<Visit>)>,
    count: u64,
}

/// Labels whose body is being executed in this run, and the futures that wait for each.
pub(in crate::engine) type Onces = HashMap<(String, Label), Vec<Waker>>;

impl CellState {
    pub(in crate::engine) fn new(mut ledger: Ledger, arrivals: Vec<Arrival>, dry: bool) -> Self {
        ledger.begin();
        let durable = ledger.run().state.version;
        let phase = match (dry, ledger.unvisited()) {
            (true, _) => Phase::Dry,
            (false, 0) => Phase::Live,
            (false, _) => Phase::Replaying,
        };
        let mut state = Self {
            ledger,
            inbox: Inbox::default(),
            waits: Waits::default(),
            phase,
            orders: Orders::default(),
            active: 0,
            diverged: None,
            grace: None,
            held: 0,
            torn: false,
            durable,
            barriers: SmallVec::new(),
            seldom: None,
            over: None,
            resting: false,
            listeners: Vec::new(),
        };
        state.take_in(arrivals);
        state
    }

    /// Visits a path: see [`Cell::visit`](super::cell::Cell::visit).
    pub(in crate::engine) fn visit(&mut self, path: Path, indexed: bool) -> Result<Visit, InvalidPath> {
        match indexed {
            true => Ok(self.ledger.visit_counted(path)),
            false => self.ledger.visit_once(path),
        }
    }

    /// Visits a recorded place that may be visited any number of times.
    pub(in crate::engine) fn visit_again(&mut self, visit: &Visit) {
        if !self.ledger.has_visited(visit)
            && let Err(again) = self.visit(visit.path.clone(), false)
        {
            self.diverge(again.to_string());
        }
    }

    /// Whether the run follows a patch; none if that is not decided yet and the answer is yes. A run that has recorded
    /// something beyond this point does not follow it, which is recorded after the replay.
    pub(in crate::engine) fn known_patch(&mut self, at: &Visit) -> Option<bool> {
        let pending = self.seldom.iter().flat_map(|seldom| &seldom.deferred);
        if pending.into_iter().any(|deferred| matches!(deferred, Deferred::Unpatched(of) if of == at)) {
            return Some(false);
        }
        match self.ledger.record_at(at) {
            Some(VisitRecord::Value(value)) => {
                let patched = value.read().unwrap_or(false);
                self.visit_again(at);
                Some(patched)
            }
            _ if self.ledger.has_more_recorded() => {
                if self.phase != Phase::Dry {
                    self.defer(Deferred::Unpatched(at.clone()));
                }
                Some(false)
            }
            _ => None,
        }
    }

    /// Records whether the run follows a patch, unless another branch has done so; returns the recorded answer.
    pub(in crate::engine) fn record_patch(&mut self, at: &Visit, patched: bool) -> bool {
        if let Some(known) = self.ledger.record_at(at).and_then(|record| match record {
            VisitRecord::Value(value) => value.read().ok(),
            _ => None,
        }) {
            return known;
        }
        self.visit_again(at);
        let value = Payload::of(&patched).expect("a truth value is JSON");
        self.record(Entry::Recorded { at: at.clone(), value, failed: None });
        patched
    }

    /// Whether the execution has yet to visit some of what is recorded.
    pub(in crate::engine) fn is_behind(&self) -> bool {
        matches!(self.phase, Phase::Replaying | Phase::Dry) && self.ledger.unvisited() > 0
    }

    /// Records an entry, unless the code does not fit the ledger.
    pub(in crate::engine) fn record(&mut self, entry: Entry) {
        if self.diverged.is_none() {
            self.record_end(entry);
        }
    }

    /// Records the end of an effect that had begun, even if the code does not fit: the effect has taken place.
    pub(in crate::engine) fn record_end(&mut self, entry: Entry) {
        if let Err(refused) = self.ledger.record(entry) {
            self.diverge(refused.to_string());
        }
    }

    /// Notes that the code does not fit the ledger. Only the first reason counts.
    pub(in crate::engine) fn diverge(&mut self, why: String) {
        self.diverged.get_or_insert(why);
    }

    /// Refuses new work in a run that was asked to end, unless it is shielded as clean-up.
    pub(in crate::engine) fn check_cancelled(&self, shielded: bool) -> Result<(), Fail> {
        match self.ledger.cancelling() {
            Some((reason, _)) if !shielded => Err(Fail::cancelled(reason)),
            _ => Ok(()),
        }
    }

    pub(in crate::engine) fn poll_live(
        &mut self,
        cx: &Context<'_>,
        asks: Option<&Visit>,
        parked: &mut Option<Waker>,
    ) -> Poll<()> {
        if self.held > 0 {
            return Poll::Pending;
        }
        if self.phase == Phase::Replaying && self.ledger.unvisited() == 0 {
            self.go_live();
        }
        if self.phase == Phase::Live && !self.may_act() {
            self.keep_early(cx.waker());
            return Poll::Pending;
        }
        if self.phase == Phase::Live {
            return Poll::Ready(());
        }
        if parked.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            *parked = Some(cx.waker().clone());
            self.seldom().parked.push(Parked { asks: asks.cloned(), waker: cx.waker().clone() });
        }
        Poll::Pending
    }

    pub(in crate::engine) fn poll_durable(&mut self, cx: &Context<'_>, barrier: &mut Barrier) -> Poll<()> {
        if self.diverged.is_some() {
            // Later records are not durable yet, and nothing may begin that relies on them.
            return Poll::Pending;
        }
        self.poll_written(cx, barrier)
    }

    /// The same for an entry that certainly was recorded.
    pub(in crate::engine) fn poll_written(&mut self, cx: &Context<'_>, barrier: &mut Barrier) -> Poll<()> {
        let version = *barrier.version.get_or_insert(self.ledger.run().state.version);
        if self.durable >= version {
            return Poll::Ready(());
        }
        if barrier.registered.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.barriers.push((version, cx.waker().clone()));
            barrier.registered = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether the workflow may act now: the run is claimed, its code fits, and its execution was not given up.
    pub(in crate::engine) fn may_act(&self) -> bool {
        self.ledger.run().status() == Status::Running && self.diverged.is_none() && !self.torn
    }

    /// Whether only running effects go on: the code does not fit the ledger, but the outcomes of those effects are
    /// known nowhere else.
    pub(in crate::engine) fn only_ends(&self) -> bool {
        self.ledger.run().status() == Status::Running
            && self.diverged.is_some()
            && self.active > 0
            && !self.torn
    }

    fn go_live(&mut self) {
        self.phase = Phase::Live;
        self.defer_again();
        if let Some(seldom) = &mut self.seldom {
            seldom.parked.drain(..).for_each(|parked| parked.waker.wake());
        }
    }

    /// Carries out deferred requests, as far as that is possible now.
    fn defer_again(&mut self) {
        if let Some(seldom) = &mut self.seldom {
            for deferred in take(&mut seldom.deferred) {
                self.defer(deferred);
            }
        }
    }

    fn seldom(&mut self) -> &mut RareState {
        self.seldom.get_or_insert_default()
    }

    /// Keeps the waker of a future that wants to go on while the run is not claimed.
    pub(in crate::engine) fn keep_early(&mut self, waker: &Waker) {
        self.seldom().early.push(waker.clone());
    }

    /// Notes that the workflow is given a failure that is recorded at a visit.
    pub(in crate::engine) fn hears(&mut self, failure: &Arc<Visit>) {
        let heard = &mut self.seldom().heard;
        heard.failures.retain(|(_, failure)| failure.strong_count() > 0);
        heard.count += 1;
        heard.failures.push((heard.count, Arc::downgrade(failure)));
    }

    /// Number of failures that the workflow has been given.
    pub(in crate::engine) fn heard(&self) -> u64 {
        self.seldom.as_ref().map_or(0, |seldom| seldom.heard.count)
    }

    /// Failures that it has been given since there were `count`, and still holds.
    pub(in crate::engine) fn heard_since(&self, count: u64) -> Vec<Weak<Visit>> {
        let heard = self.seldom.iter().flat_map(|seldom| &seldom.heard.failures);
        heard.filter(|(number, _)| *number > count).map(|(_, failure)| failure.clone()).collect()
    }

    pub(in crate::engine) fn onces(&mut self) -> &mut Onces {
        &mut self.seldom().onces
    }

    pub(in crate::engine) fn defer(&mut self, deferred: Deferred) {
        if self.phase == Phase::Replaying && self.ledger.unvisited() == 0 {
            self.go_live();
        }
        if self.phase != Phase::Live || self.diverged.is_some() {
            self.seldom().deferred.push(deferred);
            return;
        }
        let hook_state = |state: &Self, hook: &Visit| match state.ledger.record_at(hook) {
            Some(VisitRecord::Hook { state, .. }) => Some(std::mem::discriminant(state)),
            _ => None,
        };
        let done = match deferred {
            Deferred::Open(hook, token) => self.ledger.open_hook(hook, token),
            Deferred::Close(hook)
                if hook_state(self, &hook) == Some(std::mem::discriminant(&HookState::Open(Vec::new()))) =>
            {
                self.ledger.record(Entry::HookClosed { hook })
            }
            // Asked for and not answered yet: it is closed as soon as it is open.
            Deferred::Close(hook)
                if hook_state(self, &hook)
                    == Some(std::mem::discriminant(&HookState::Opening(Vec::new()))) =>
            {
                self.seldom().deferred.push(Deferred::Close(hook));
                Ok(())
            }
            Deferred::Close(_) => Ok(()),
            Deferred::Unpatched(at) => {
                self.record_patch(&at, false);
                Ok(())
            }
        };
        if let Err(refused) = done {
            self.diverge(refused.to_string());
        }
    }

    /// Version up to which everything is durable.
    pub(in crate::engine) fn durable(&self) -> u64 {
        self.durable
    }

    /// Everything up to this version is durable, by a commit that was made when `seen` messages of the inbox had been
    /// seen.
    pub(in crate::engine) fn saved(&mut self, version: u64, settled: &[Entry], seen: u64) {
        if let Err(refused) = self.ledger.settle(settled) {
            self.diverge(refused.to_string());
        }
        self.durable = version;
        self.barriers.retain(|(until, waker)| {
            let waits = *until > version;
            if !waits {
                waker.wake_by_ref();
            }
            waits
        });
        for entry in settled {
            if let Entry::ChildStarted { child, attached: true, .. } = entry {
                // The child may have ended long ago.
                self.inbox.attached(child, seen);
                self.orders.look = true;
            }
        }
        if !settled.is_empty() && self.ledger.run().status() == Status::Running {
            // Hooks and children that were asked for exist now.
            self.defer_again();
            self.waits.wake_all();
        }
    }

    /// Adds new messages, and wakes the waits that they concern.
    pub(in crate::engine) fn take_in(&mut self, arrivals: Vec<Arrival>) {
        let on = self.inbox.take_in(arrivals);
        self.tell_of(on);
    }

    fn tell_of(&mut self, arrived: Vec<On>) {
        for on in arrived {
            self.waits.wake_on(&on);
        }
        self.ledger.saw_arrivals(self.inbox.seen());
    }

    /// Notes that the inbox could not be read.
    pub(in crate::engine) fn unread(&mut self) {
        self.inbox.unread();
        self.orders.look = true;
    }

    /// Number from which the inbox is to be read, if that is to be done now. Not while the run is put to rest: its
    /// next claim brings the inbox along, and until then the answer would only occupy one of the store's connections.
    pub(in crate::engine) fn wants_inbox(&mut self) -> Option<u64> {
        let wanted = self.ledger.run().status() == Status::Running && take(&mut self.orders.look);
        wanted.then(|| self.inbox.read_from())
    }

    /// The run's version at its latest claim, even if its driver has not seen that claim yet.
    pub(in crate::engine) fn claim(&self) -> u64 {
        let next = self.orders.claimed.as_ref().map(|claimed| claimed.run.state.version);
        next.unwrap_or_else(|| self.ledger.fence())
    }

    /// Continues a run that rested in memory.
    pub(in crate::engine) fn claimed(&mut self, claimed: Claimed) {
        if let Err(refused) = self.ledger.claimed(claimed.run) {
            self.diverge(refused.to_string());
        }
        self.durable = self.ledger.run().state.version;
        self.resting = false;
        if let Some(seldom) = &mut self.seldom {
            seldom.early.drain(..).for_each(Waker::wake);
        }
        let on = self.inbox.take_in_all(claimed.inbox);
        self.tell_of(on);
    }

    /// The workflow has gone as far as it can. If it has visited everything that is recorded, it may do new work now;
    /// if not, it never will.
    pub(in crate::engine) fn end_replay(&mut self) {
        if self.phase != Phase::Replaying {
            return;
        }
        if self.ledger.unvisited() == 0 {
            self.go_live();
        } else {
            self.judge();
        }
    }

    /// The code goes no further: it no longer asks for recorded places that it has not visited. This is judged in
    /// every phase: an engine that stops must not treat a run as done whose code has lost a step.
    pub(in crate::engine) fn judge(&mut self) {
        if self.ledger.unvisited() > 0 && self.diverged.is_none() {
            let missing = self.ledger.missing();
            let parked = self.seldom.iter().flat_map(|seldom| &seldom.parked);
            let asked: Vec<&Visit> = parked.filter_map(|parked| parked.asks.as_ref()).collect();
            let instead = match asked.len() {
                0 => "the code ends without it".to_owned(),
                _ => format!("the code asks for {} instead", listed(asked)),
            };
            let are = if missing.len() == 1 { "is" } else { "are" };
            self.diverge(format!(
                "{} {are} in the ledger and {instead}: was a step renamed, removed or moved? Or does the code decide by \
                 something that is not recorded: a clock, chance, `select!` or a timeout of the runtime?",
                listed(&missing)
            ));
        }
    }

    /// Whether some effect of a workflow that has returned its result is in doubt. An effect that must not take place
    /// twice, had begun, and was dropped before its end (it lost a race, or its time was limited) is in doubt from
    /// here on.
    pub(in crate::engine) fn doubt_what_was_left(&mut self) -> bool {
        for step in self.ledger.begun() {
            let reason = "the workflow went on without waiting for its end".to_owned();
            self.record(Entry::StepInDoubt { step, reason });
        }
        self.ledger.is_in_doubt()
    }

    /// Whether the workflow is about to count as unable to go on: it rests, or it stopped before a recorded visit.
    pub(in crate::engine) fn seems_done(&self) -> bool {
        match self.phase {
            Phase::Replaying => self.ledger.unvisited() > 0,
            _ => self.only_waits(),
        }
    }

    /// Facts for the decision whether the run leaves memory, taken when nothing moves by itself. `reading` is whether
    /// the inbox is being read.
    pub(in crate::engine) fn facts(&self, reading: bool) -> LeaveFacts {
        LeaveFacts {
            deadline: self.ledger.deadline(),
            diverged: self.diverged.is_some(),
            grace: self.grace,
            active: self.active > 0,
            has_barriers: self.has_barriers(),
            stop: self.orders.stop,
            stop_now: self.orders.stop_now,
            in_doubt: self.ledger.is_in_doubt(),
            only_waits: self.only_waits() && !self.orders.look && !reading,
            due: self.waits.due(),
        }
    }

    /// Pauses the run, because its code does not fit the ledger.
    pub(in crate::engine) fn pause_diverged(&mut self) {
        let Some(why) = self.diverged.take() else { return };
        tracing::error!(run = %self.ledger.run().id(), %why, "the code does not fit the ledger; the run is paused");
        // Recorded through the ledger itself: there is no place to report a refusal.
        if let Err(refused) = self.ledger.record(Entry::Paused { reason: PauseReason::Diverged(why) }) {
            tracing::error!(%refused, "a run that diverged cannot be paused");
        }
    }

    /// Whether only durable waits are left.
    pub(in crate::engine) fn only_waits(&self) -> bool {
        // A hook that is dropped before it is open is closed once it is: the run must not rest before that.
        let hooks_done = self.seldom.as_ref().is_none_or(|seldom| seldom.deferred.is_empty());
        self.phase == Phase::Live
            && self.active == 0
            && !self.has_barriers()
            && hooks_done
            && !self.waits.is_empty()
    }

    /// Takes out all wakers, to be dropped: none of them is polled any more.
    pub(in crate::engine) fn let_go(&mut self) -> impl Sized + use<> {
        (take(&mut self.seldom), take(&mut self.barriers), take(&mut self.waits))
    }

    pub(in crate::engine) fn has_barriers(&self) -> bool {
        !self.barriers.is_empty()
    }
}

/// The first of several places, and the number of the others: a long run may have very many.
fn listed<'a>(visits: impl IntoIterator<Item = &'a Visit>) -> String {
    const SHOWN: usize = 5;
    let mut visits = visits.into_iter();
    let shown: Vec<String> = visits.by_ref().take(SHOWN).map(|visit| format!("`{visit}`")).collect();
    match visits.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
