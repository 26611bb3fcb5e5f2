//! What the code of a workflow may ask of its run: the only way from `sdk` into the engine.
//!
//! Each call takes the run's lock and gives it back before it returns. What code reads of the ledger it reads in a closure
//! under that lock, so such a closure does nothing else. Durable waits are in [`wait`](super::wait).

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use super::cell::Cell;
use super::state::{Barrier, CellState, Deferred, Phase};
use crate::clock::{Clock, Time};
use crate::engine::Registry;
use crate::engine::replay::watch::{Location as At, Requested};
use crate::error::failure_code;
use crate::fail::{Result, fatal};
use crate::id::RunId;
use crate::rules::entry::{Class, Entry};
use crate::rules::json::Payload;
use crate::rules::key::{Label, Token};
use crate::rules::ledger::{HookState, Ledger, RefusedEntry, VisitRecord};
use crate::rules::path::{Name, Path, Visit};
use crate::rules::step::StepState;
use crate::sabotage::{self, Bug};

/// Something new that a workflow does, apart from effects.
pub(crate) enum Addition {
    /// An entry that is recorded as it is.
    Entry(Entry),
    /// A token that is asked for once more, at a hook that was closed in an earlier life of the run.
    Hook(Visit, Token),
    /// A child to start at a visit.
    Child { child: Visit, run: RunId, workflow: Name, version: Name, input: Payload },
}

/// Conditions under which an effect may begin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BeginEffect<'a> {
    /// Whether it may begin although the run was asked to end: it is clean-up, or began before.
    pub(crate) shielded: bool,
    /// An attempt whose start must be durable before its body is called.
    pub(crate) intent: Option<Intent<'a>>,
}

/// The start of an attempt that is recorded before its body is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent<'a> {
    pub(crate) attempt: u32,
    pub(crate) class: Class,
    /// The note at the step.
    pub(crate) note: Option<&'a Payload>,
}

/// The run and its engine.
impl Cell {
    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.core.clock
    }

    /// The store's time, as far as it is known: see [`Core::now`](crate::engine::Core::now).
    pub(crate) fn now(&self) -> Time {
        self.core.now()
    }

    /// The store's time when `time` has passed.
    pub(crate) fn after(&self, time: Duration) -> Time {
        self.core.after(time)
    }

    /// A random number below one.
    pub(crate) fn random(&self) -> f64 {
        self.core.random()
    }

    /// The state of this type that was given to [`Builder::state`](crate::engine::Builder::state).
    pub(crate) fn state<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.core.state()
    }

    /// The functions that are registered in the engine.
    pub(crate) fn registry(&self) -> &Registry {
        &self.core.registry
    }

    /// What decides whether the engine dies at a step, in a test.
    #[cfg(feature = "testing")]
    pub(crate) fn probe(&self) -> Option<&Arc<crate::testing::crash::fate::Fate>> {
        self.core.probe.as_ref()
    }
}

/// What is recorded, and where the code stands.
impl Cell {
    /// Reads the run's ledger.
    pub(crate) fn ledger<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.lock().ledger)
    }

    /// Reads the record at a visit with `read`. None if nothing is recorded there. If `read` gives nothing for a
    /// record, the code has diverged: it has `kind` there.
    pub(crate) fn recorded<T>(
        &self,
        at: &Visit,
        kind: &str,
        read: impl FnOnce(&VisitRecord) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        let found = read(state.ledger.record_at(at)?);
        if found.is_none() {
            state.diverge(format!("`{at}` is {kind} in the code, but not in the ledger"));
        }
        found
    }

    /// Notes that the code does not fit the ledger. Only the first reason counts.
    pub(crate) fn diverge(&self, why: String) {
        self.lock().diverge(why);
    }

    /// Visits a path, which is the identity of the work in this run from here on.
    pub(crate) fn visit(&self, path: Path, indexed: bool) -> Result<Visit> {
        self.refuse_inside(&path)?;
        self.lock().visit(path, indexed).map_err(fatal)
    }

    /// Visits a recorded place that may be visited any number of times.
    pub(crate) fn visit_again(&self, visit: &Visit) {
        self.lock().visit_again(visit);
    }

    /// Whether recorded results are being given, and nothing new is done.
    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self.lock().phase, Phase::Replaying | Phase::Dry)
    }

    /// Whether there is nothing to be recorded of a step that is skipped: its skip is recorded, or the step took place in an
    /// earlier life of the run, which had its reasons, or later things are recorded, and this makes no difference to them. A
    /// dry run goes on also if the step took place, to see what else differs.
    pub(crate) fn has_skipped(&self, step: &Visit) -> bool {
        let mut state = self.lock();
        match state.ledger.record_at(step) {
            None => state.is_behind(),
            Some(VisitRecord::Step(StepState::Skipped)) => true,
            Some(_) if state.ledger.is_carried(step) || state.phase == Phase::Dry => true,
            Some(_) => {
                state.diverge(format!("`{step}` is skipped in the code, but not in the ledger"));
                false
            }
        }
    }

    /// Notes that the workflow is given a failure that is recorded at a visit. The failure keeps what this returns, so that
    /// a race knows whether it is still held.
    pub(crate) fn hears(&self, failure: &Visit) -> Arc<Visit> {
        let failure = Arc::new(failure.clone());
        self.lock().hears(&failure);
        failure
    }

    /// Number of failures that the workflow has been given.
    pub(crate) fn heard(&self) -> u64 {
        self.lock().heard()
    }

    /// Failures that it has been given since there were `count`, and still holds.
    pub(crate) fn heard_since(&self, count: u64) -> Vec<Weak<Visit>> {
        self.lock().heard_since(count)
    }

    /// Refuses a call from the body of a step. It would work in this execution, but after the first rebuild the
    /// ledger would hold an entry that the code never visits.
    pub(crate) fn refuse_inside(&self, what: impl fmt::Display) -> Result<()> {
        if !self.is_inside() {
            return Ok(());
        }
        let why = format!(
            "`{what}` is asked for inside of the body of a step or of `run_once`, which is not called again when its result is \
             recorded: ask before it, and use the answer in it"
        );
        self.diverge(why.clone());
        Err(fatal(why))
    }

    /// Whether the caller is the body of an effect of this run.
    pub(crate) fn is_inside(&self) -> bool {
        INSIDE.get() == std::ptr::from_ref(self).addr()
    }

    /// Marks that the body of an effect is being polled on this thread, until the guard is dropped.
    pub(crate) fn enter_body(&self) -> Inside {
        Inside(INSIDE.replace(std::ptr::from_ref(self).addr()))
    }

    /// Tells the observer of a dry replay what the code asks for.
    pub(crate) fn asks(&self, visit: &Visit, asked: impl FnOnce() -> Requested) {
        if let Some(watch) = &self.watch {
            watch.asks(At::Visit(visit.clone()), asked());
        }
    }

    /// Tells the observer of a dry replay that the code asks for a label.
    pub(crate) fn asks_once(&self, (scope, label): &(String, Label)) {
        if let Some(watch) = &self.watch {
            watch.asks(At::Once(scope.clone(), label.clone()), Requested::Once);
        }
    }
}

/// New work.
impl Cell {
    /// Refuses new work in a run that was asked to end, unless it is shielded as clean-up.
    pub(crate) fn check_cancelled(&self, shielded: bool) -> Result<()> {
        self.lock().check_cancelled(shielded)
    }

    /// Refuses new work in a run whose ledger is full, unless it is shielded as clean-up.
    fn check_size(&self, state: &CellState, shielded: bool) -> Result<()> {
        let bounds = self.core.limits.ledger;
        match !shielded && state.ledger.is_full(bounds) {
            true => Err(fatal(format_args!("the ledger of this run is full: {bounds}"))
                .with_code(failure_code::LEDGER_FULL)),
            false => Ok(()),
        }
    }

    /// Waits until new work may begin. `asks` names the waiting visit in the report if that never happens.
    pub(crate) async fn live(&self, asks: Option<&Visit>) {
        let _waits = self.watch.as_ref().zip(asks).map(|(watch, asks)| watch.waits(asks));
        let mut parked = None;
        poll_fn(|cx| self.lock().poll_live(cx, asks, &mut parked)).await;
    }

    /// Waits until new work may begin, and adds at once what `make` gives, before the run can be put to rest for other
    /// reasons. What else `make` gives is returned.
    pub(crate) async fn add<T>(&self, at: &Visit, make: impl FnOnce() -> Result<(Addition, T)>) -> Result<T> {
        self.live_then(at, |state| Ok(state.add(make()?))).await
    }

    /// The same for work that does not begin in a run that was asked to end, unless it is shielded.
    pub(crate) async fn add_unless_cancelled<T>(
        &self,
        at: &Visit,
        shielded: bool,
        make: impl FnOnce() -> Result<(Addition, T)>,
    ) -> Result<T> {
        self.check_cancelled(shielded)?;
        let add = |state: &mut CellState| {
            state.check_cancelled(shielded)?;
            self.check_size(state, shielded)?;
            Ok(state.add(make()?))
        };
        self.live_then(at, add).await
    }

    /// Records entries together: no commit has some of them without the others.
    pub(crate) fn record(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.lock();
        entries.into_iter().for_each(|entry| state.record(entry));
    }

    /// Records the end of an effect that had begun, even if the code does not fit: the effect has taken place.
    pub(crate) fn record_end(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.lock();
        entries.into_iter().for_each(|entry| state.record_end(entry));
    }

    /// Whether the run follows a patch, which is recorded if it is not yet.
    pub(crate) async fn follows_patch(&self, at: &Visit) -> bool {
        let known = self.lock().known_patch(at);
        match known {
            Some(patched) => patched,
            None => self.live_then(at, |state| state.record_patch(at, true)).await,
        }
    }

    /// Waits until new work may begin, and does `act` at once.
    async fn live_then<T>(&self, asks: &Visit, act: impl FnOnce(&mut CellState) -> T) -> T {
        let _waits = self.watch.as_ref().map(|watch| watch.waits(asks));
        let (mut parked, mut act) = (None, Some(act));
        let done = poll_fn(|cx| {
            let mut state = self.lock();
            ready!(state.poll_live(cx, Some(asks), &mut parked));
            let act = act.take().expect("a completed future is not polled again");
            Poll::Ready(act(&mut state))
        })
        .await;
        self.signal.nudge();
        done
    }

    /// Prevents new work until the guard is dropped.
    pub(crate) fn hold(&self) -> Hold<'_> {
        self.lock().held += 1;
        Hold(self)
    }

    /// Waits until everything recorded so far is durable.
    pub(crate) async fn barrier(&self) {
        let mut barrier = Barrier::default();
        poll_fn(|cx| self.lock().poll_durable(cx, &mut barrier)).await;
    }

    /// Waits until what was certainly recorded so far is durable, even if the code turns out not to fit meanwhile.
    pub(crate) async fn written(&self) {
        self.signal.nudge();
        let mut barrier = Barrier::default();
        poll_fn(|cx| self.lock().poll_written(cx, &mut barrier)).await;
    }

    /// Waits until an effect may begin, and counts it as active until the guard is dropped. An attempt whose start
    /// must be durable first is recorded here.
    pub(crate) async fn begin(self: &Arc<Self>, asks: &Visit, how: BeginEffect<'_>) -> Result<Active> {
        let _waits = self.watch.as_ref().map(|watch| watch.waits(asks));
        let (mut parked, mut barrier) = (None, Barrier::default());
        // All conditions are checked each time: while one is awaited, another may change.
        let began = poll_fn(|cx| {
            let mut state = self.lock();
            // Checked during the replay too: an effect that a run had not begun when it was asked to end is not begun
            // in a replay either.
            if let Err(cancelled) = state.check_cancelled(how.shielded) {
                return Poll::Ready(Err(cancelled));
            }
            ready!(state.poll_live(cx, Some(asks), &mut parked));
            if !sabotage::commits(Bug::EffectBeforeDurable) {
                ready!(state.poll_durable(cx, &mut barrier));
            }
            if let Err(full) = self.check_size(&state, how.shielded) {
                return Poll::Ready(Err(full));
            }
            if let Some(Intent { attempt, class, note }) = how.intent {
                let (step, note) = (asks.clone(), note.cloned());
                state.record(Entry::StepStarted { step, attempt, class, at: None, note });
            }
            state.active += 1;
            Poll::Ready(Ok(()))
        });
        let active = began.await.map(|()| Active(self.clone()))?;
        if how.intent.is_some() && !sabotage::commits(Bug::IntentAfterBody) {
            self.signal.nudge();
            let mut written = Barrier::default();
            // Once its start is recorded, the effect begins even if the code turns out not to fit meanwhile:
            // otherwise its outcome would stay unknown.
            poll_fn(|cx| self.lock().poll_written(cx, &mut written)).await;
        }
        Ok(active)
    }

    /// Opens a hook, now or after the replay.
    pub(crate) fn open_hook(&self, hook: &Visit, token: &Token) {
        let mut state = self.lock();
        match state.ledger.record_at(hook) {
            None | Some(VisitRecord::Hook { state: HookState::Released(_), .. }) => {
                state.defer(Deferred::Open(hook.clone(), token.clone()));
            }
            Some(VisitRecord::Hook { token: recorded, .. }) if recorded == token => {}
            Some(_) => state.diverge(format!("`{hook}` is not the hook that the ledger has there")),
        }
        drop(state);
        self.signal.nudge();
    }

    /// Closes a hook that the workflow has dropped or disposed of.
    pub(crate) fn close_hook(&self, hook: &Visit) {
        let mut state = self.lock();
        if !state.torn {
            state.defer(Deferred::Close(hook.clone()));
        }
        drop(state);
        self.signal.nudge();
    }
}

impl CellState {
    /// Takes in something new; what the ledger refuses shows that the code does not fit.
    fn add<T>(&mut self, (addition, made): (Addition, T)) -> T {
        let added: Result<(), RefusedEntry> = match addition {
            Addition::Entry(entry) => {
                self.record(entry);
                Ok(())
            }
            Addition::Hook(hook, token) => self.ledger.open_hook(hook, token),
            Addition::Child { child, run, workflow, version, input } => {
                self.ledger.start_child(child, run, workflow, version, input)
            }
        };
        if let Err(refused) = added {
            self.diverge(refused.to_string());
        }
        made
    }
}

thread_local! {
    /// Address of the cell whose body is being polled on this thread; 0 if there is none. Not kept in the cell,
    /// because steps may be polled by several threads at once, in tasks of their own.
    static INSIDE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A body is being polled. Holds the address of the enclosing body, if there is one.
pub(crate) struct Inside(usize);

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

/// While it lives, no new work begins.
pub(crate) struct Hold<'a>(&'a Cell);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.lock().held -= 1;
    }
}

/// An effect in progress.
pub(crate) struct Active(Arc<Cell>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.lock().active -= 1;
        self.0.signal.ease();
    }
}
