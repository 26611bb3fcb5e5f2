//! Where a run in memory stands: its ledger, what has arrived, what was asked for, and who waits for what.
//!
//! Data and its changes, all under the one lock of the run's [`Cell`](super::cell::Cell): nothing here waits, reads a
//! clock or calls user code. Whether the code fits the ledger is judged here.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::inbox::{Inbox, On};
use super::waits::Waits;
use crate::clock::Time;
use crate::rules::entry::{Entry, Outcome};
use crate::rules::key::{Label, Token};
use crate::rules::ledger::{HookState, Ledger, Record};
use crate::rules::path::{InvalidPath, Path, Visit};
use crate::rules::status::Status;
use crate::sdk::fail::Fail;
use crate::store::{Arrival, Claimed};

/// Where an execution stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is given its recorded results.
    Replaying,
    /// It does new things.
    Live,
    /// It begins nothing any more: the engine stops.
    Stopping,
    /// It is looked at, and does nothing new.
    Dry,
}

/// How a run left memory.
#[derive(Clone, Debug)]
pub(crate) enum Over {
    /// It has ended.
    Ended(Outcome),
    /// It is somebody else's, or waits in the store.
    Gone,
}

/// What the rest of the engine wants of a driver.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "orders do not exclude each other")]
pub(crate) struct Orders {
    /// Something has arrived in the inbox.
    pub(super) look: bool,
    /// The run belongs to somebody else.
    pub(super) lost: bool,
    /// A run that rests in memory was claimed again.
    pub(super) claimed: Option<Box<Claimed>>,
    /// A run that rests in memory makes room.
    pub(super) evicted: bool,
    /// Begin nothing more, and give the run back when what has begun is over.
    pub(super) stop: bool,
    /// Give the run back now.
    pub(super) stop_now: bool,
}

impl Orders {
    /// Something may have arrived.
    pub(crate) fn look_now(&mut self) {
        self.look = true;
    }
}

/// Something that waits for the end of the replay.
struct Parked {
    asks: Option<Visit>,
    waker: Waker,
}

/// Somebody who waits until a version is durable.
#[derive(Default)]
pub(super) struct Barrier {
    version: Option<u64>,
    registered: Option<Waker>,
}

/// What a hook has asked for during the replay.
pub(super) enum Deferred {
    Open(Visit, Token),
    Close(Visit),
}

/// The part that is guarded by a lock. It is held for moments only, and never while user code runs.
pub(crate) struct State {
    pub(crate) ledger: Ledger,
    pub(crate) inbox: Inbox,
    pub(super) waits: Waits,
    pub(crate) phase: Phase,
    pub(super) orders: Orders,
    /// Bodies that are being executed.
    pub(super) active: usize,
    /// Why the code does not fit the ledger.
    pub(super) diverged: Option<String>,
    /// How long effects that have begun are waited for then.
    pub(super) grace: Option<Time>,
    /// What is polled now is given what is recorded, and does nothing new: it has lost a race.
    pub(super) held: usize,
    /// The engine is dropping the workflow: what it drops now is not the workflow's doing.
    pub(super) torn: bool,
    /// Up to which version everything is durable.
    durable: u64,
    /// One at a time, if the workflow does one thing after the other.
    barriers: SmallVec<[(u64, Waker); 1]>,
    /// Apart: where thousands of runs take turns, what each of them touches counts.
    seldom: Option<Box<Seldom>>,
    pub(super) over: Option<Over>,
    /// Waits durably; whoever claims it next may be another engine.
    pub(super) resting: bool,
    pub(super) listeners: Vec<Waker>,
}

/// What most runs never have.
#[derive(Default)]
struct Seldom {
    parked: Vec<Parked>,
    /// Those that wanted to go on while the run was not claimed.
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

/// Labels whose body is being executed in this run, and who waits for it.
pub(crate) type Onces = HashMap<(String, Label), Vec<Waker>>;

impl State {
    pub(super) fn new(mut ledger: Ledger, arrivals: Vec<Arrival>, dry: bool) -> Self {
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

    /// Comes by a path: see [`Cell::visit`](super::cell::Cell::visit).
    pub(super) fn visit(&mut self, path: Path, indexed: bool) -> Result<Visit, InvalidPath> {
        match indexed {
            true => Ok(self.ledger.visit_counted(path)),
            false => self.ledger.visit_once(path),
        }
    }

    /// Comes by something that is recorded at a place which may be come by any number of times.
    pub(crate) fn come_by(&mut self, visit: &Visit) {
        if !self.ledger.has_come_by(visit)
            && let Err(again) = self.visit(visit.path.clone(), false)
        {
            self.diverge(again.to_string());
        }
    }

    /// Whether the execution has not come by all that is recorded.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self.phase, Phase::Replaying | Phase::Dry) && self.ledger.unvisited() > 0
    }

    /// Code that does not fit the ledger has nothing more to say.
    pub(crate) fn record(&mut self, entry: Entry) {
        if self.diverged.is_none() {
            self.record_end(entry);
        }
    }

    /// What came of an effect that had begun. It has taken place, whatever else the code does.
    pub(crate) fn record_end(&mut self, entry: Entry) {
        if let Err(refused) = self.ledger.record(entry) {
            self.diverge(refused.to_string());
        }
    }

    /// The code does not fit the ledger. The first reason is the one that counts.
    pub(crate) fn diverge(&mut self, why: String) {
        self.diverged.get_or_insert(why);
    }

    /// Refuses what a run that was asked to end does not begin any more, unless it is shielded: its clean-up.
    pub(crate) fn check_cancelled(&self, shielded: bool) -> Result<(), Fail> {
        match self.ledger.cancelling() {
            Some((reason, _)) if !shielded => Err(Fail::cancelled(reason)),
            _ => Ok(()),
        }
    }

    pub(super) fn poll_live(
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
            self.comes_early(cx.waker());
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

    pub(super) fn poll_durable(&mut self, cx: &Context<'_>, barrier: &mut Barrier) -> Poll<()> {
        if self.diverged.is_some() {
            // What was recorded since is not, and nothing may begin that relies on it.
            return Poll::Pending;
        }
        self.poll_written(cx, barrier)
    }

    /// The same for what certainly was recorded.
    pub(super) fn poll_written(&mut self, cx: &Context<'_>, barrier: &mut Barrier) -> Poll<()> {
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

    /// Whether the workflow may do something now: the run is claimed, its code fits, and its execution was not given up.
    pub(super) fn may_act(&self) -> bool {
        self.ledger.run().status() == Status::Running && self.diverged.is_none() && !self.torn
    }

    /// Whether only effects that have begun go on: the code does not fit the ledger, but what comes of them is known to
    /// nobody else.
    pub(super) fn only_ends(&self) -> bool {
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

    /// What was deferred is done now, if it can be.
    fn defer_again(&mut self) {
        if let Some(seldom) = &mut self.seldom {
            for deferred in take(&mut seldom.deferred) {
                self.defer(deferred);
            }
        }
    }

    fn seldom(&mut self) -> &mut Seldom {
        self.seldom.get_or_insert_default()
    }

    /// Somebody wants to go on while the run is not claimed.
    pub(super) fn comes_early(&mut self, waker: &Waker) {
        self.seldom().early.push(waker.clone());
    }

    /// The workflow is given a failure that is recorded at a visit.
    pub(crate) fn hears(&mut self, failure: &Arc<Visit>) {
        let heard = &mut self.seldom().heard;
        heard.failures.retain(|(_, failure)| failure.strong_count() > 0);
        heard.count += 1;
        heard.failures.push((heard.count, Arc::downgrade(failure)));
    }

    /// How many failures the workflow has been given.
    pub(crate) fn heard(&self) -> u64 {
        self.seldom.as_ref().map_or(0, |seldom| seldom.heard.count)
    }

    /// Those that it has been given since there were so many, and still holds.
    pub(crate) fn heard_since(&self, count: u64) -> Vec<Weak<Visit>> {
        let heard = self.seldom.iter().flat_map(|seldom| &seldom.heard.failures);
        heard.filter(|(number, _)| *number > count).map(|(_, failure)| failure.clone()).collect()
    }

    pub(crate) fn onces(&mut self) -> &mut Onces {
        &mut self.seldom().onces
    }

    pub(super) fn defer(&mut self, deferred: Deferred) {
        if self.phase == Phase::Replaying && self.ledger.unvisited() == 0 {
            self.go_live();
        }
        if self.phase != Phase::Live || self.diverged.is_some() {
            self.seldom().deferred.push(deferred);
            return;
        }
        let hook_state = |state: &Self, hook: &Visit| match state.ledger.record_at(hook) {
            Some(Record::Hook { state, .. }) => Some(std::mem::discriminant(state)),
            _ => None,
        };
        let done = match deferred {
            Deferred::Open(hook, token) => self.ledger.open_hook(hook, token),
            Deferred::Close(hook)
                if hook_state(self, &hook) == Some(std::mem::discriminant(&HookState::Open(Vec::new()))) =>
            {
                self.ledger.record(Entry::HookClosed { hook })
            }
            // Asked for and not answered yet: closed as soon as it is open.
            Deferred::Close(hook)
                if hook_state(self, &hook)
                    == Some(std::mem::discriminant(&HookState::Opening(Vec::new()))) =>
            {
                self.seldom().deferred.push(Deferred::Close(hook));
                Ok(())
            }
            Deferred::Close(_) => Ok(()),
        };
        if let Err(refused) = done {
            self.diverge(refused.to_string());
        }
    }

    /// Up to which version everything is durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// Everything up to this version is durable, by a commit that was made when so much of the inbox had been `seen`.
    pub(super) fn saved(&mut self, version: u64, settled: &[Entry], seen: u64) {
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
                // It may have ended long ago.
                self.inbox.attached(child, seen);
                self.orders.look = true;
            }
        }
        if !settled.is_empty() && self.ledger.run().status() == Status::Running {
            // Hooks and children that were asked for are there now.
            self.defer_again();
            self.waits.wake_all();
        }
    }

    /// Takes in what has arrived, and lets those go on who wait for it.
    pub(super) fn take_in(&mut self, arrivals: Vec<Arrival>) {
        let on = self.inbox.take_in(arrivals);
        self.tell_of(on);
    }

    fn tell_of(&mut self, arrived: Vec<On>) {
        for on in arrived {
            self.waits.wake_on(&on);
        }
        self.ledger.saw_arrivals(self.inbox.seen());
    }

    /// The inbox could not be read.
    pub(super) fn unread(&mut self) {
        self.inbox.unread();
        self.orders.look = true;
    }

    /// From which number on the inbox is to be read, if that is to be done now. Not while the run is put to rest: its next
    /// claim brings the inbox along, and until then nobody would wait for an answer that keeps one of the store's
    /// connections.
    pub(super) fn wants_inbox(&mut self) -> Option<u64> {
        let wanted = self.ledger.run().status() == Status::Running && take(&mut self.orders.look);
        wanted.then(|| self.inbox.read_from())
    }

    /// The run's version at its latest claim, also if its driver has not heard of that one yet.
    pub(super) fn claim(&self) -> u64 {
        let next = self.orders.claimed.as_ref().map(|claimed| claimed.run.state.version);
        next.unwrap_or_else(|| self.ledger.fence())
    }

    /// A run that rested in memory goes on.
    pub(super) fn claimed(&mut self, claimed: Claimed) {
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

    /// The workflow has gone as far as it can. If it has come by everything that is recorded, it may do new things now;
    /// if not, it never will.
    pub(super) fn end_replay(&mut self) {
        if self.phase != Phase::Replaying {
            return;
        }
        if self.ledger.unvisited() == 0 {
            self.go_live();
        } else {
            self.judge();
        }
    }

    /// The code goes no further: whatever is recorded and was not come by, it no longer asks for. That is so in every
    /// phase: an engine that stops must not take a run for done whose code has lost a step.
    pub(super) fn judge(&mut self) {
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

    /// Whether some effect of a workflow that has come to its result is in doubt. What must not take place twice, had begun,
    /// and was dropped before its end (it lost a race, or its time was limited) is in doubt from here on.
    pub(super) fn doubt_what_was_left(&mut self) -> bool {
        for step in self.ledger.begun() {
            let reason = "the workflow went on without waiting for its end".to_owned();
            self.record(Entry::StepInDoubt { step, reason });
        }
        self.ledger.is_in_doubt()
    }

    /// Whether the workflow is about to be said to have gone as far as it can: it rests, or it stopped short of something.
    pub(super) fn seems_done(&self) -> bool {
        match self.phase {
            Phase::Replaying => self.ledger.unvisited() > 0,
            _ => self.only_waits(),
        }
    }

    /// Whether nothing goes on but durable waits.
    pub(super) fn only_waits(&self) -> bool {
        // A hook that is dropped before it is open is closed when it is: the run must not rest before that.
        let hooks_done = self.seldom.as_ref().is_none_or(|seldom| seldom.deferred.is_empty());
        self.phase == Phase::Live
            && self.active == 0
            && !self.has_barriers()
            && hooks_done
            && !self.waits.is_empty()
    }

    /// All who wait here, to be dropped: none of them is polled any more.
    pub(super) fn let_go(&mut self) -> impl Sized + use<> {
        (take(&mut self.seldom), take(&mut self.barriers), take(&mut self.waits))
    }

    pub(super) fn has_barriers(&self) -> bool {
        !self.barriers.is_empty()
    }
}

/// The first of several places, and how many more there are: of a long run there may be very many.
fn listed<'a>(visits: impl IntoIterator<Item = &'a Visit>) -> String {
    const SHOWN: usize = 5;
    let mut visits = visits.into_iter();
    let shown: Vec<String> = visits.by_ref().take(SHOWN).map(|visit| format!("`{visit}`")).collect();
    match visits.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
