//! Executes a run again, under the same effect keys, and compares the two ledgers.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::judge::{END, Recorded};
use super::watch::Location;
use super::{History, Replay, ReplayKind, ReplayRow, ReplayVerdict};
use crate::engine::{Engine, RunHandle};
use crate::error::{Error, Result};
use crate::rules::deliver::Deliver;
use crate::rules::json::Payload;
use crate::rules::key::CallId;
use crate::rules::ledger::{HookState, Ledger, Lineage, VisitRecord};
use crate::rules::path::Visit;
use crate::rules::status::Status;
use serde_json::{Value, json};

/// How often the fork is looked at.
const PACE: Duration = Duration::from_millis(20);

/// Forks the run at its beginning, drives the fork to its end, and compares.
pub(super) async fn replay(engine: &Engine, history: &History) -> Result<Replay> {
    let original = history.recorded()?;
    if original.ledger.outcome().is_none() {
        let hint = "it is executed again when it has ended; a dry run replays what there is";
        return Err(Error::Validation(format!("{} has not ended: {hint}", history.run)));
    }
    let created = original.ledger.created();
    // Without its code the fork would wait for another engine, perhaps for ever.
    engine.core().code(engine.workspace(), &created.workflow, &created.workflow_version).await?;
    let fork = engine.run(history.run).by("replay").fork(Some(1), Lineage::Inherited).await?;
    Again { engine, original: &original.ledger, fork: &fork, given: HashMap::new(), asked_to_end: false }
        .drive()
        .await?;
    let again = engine.export(fork.id()).await?.recorded()?;
    Ok(original.replay(Some(fork.id()), compare(&original, &again)))
}

/// A fork on its way through what the original met.
struct Again<'a> {
    engine: &'a Engine,
    original: &'a Ledger,
    fork: &'a RunHandle<Value>,
    /// How many payloads each hook was given.
    given: HashMap<Visit, usize>,
    asked_to_end: bool,
}

impl Again<'_> {
    /// Gives the fork what the original got, until it ends or can go no further.
    async fn drive(mut self) -> Result<()> {
        let core = self.engine.core();
        loop {
            let header = self.fork.header().await?;
            if header.status().is_terminal() || header.status() == Status::Paused {
                return Ok(());
            }
            let ledger = self.engine.export(self.fork.id()).await?.recorded()?.ledger;
            let fed = self.feed(&ledger).await?;
            if !fed
                && header.status() == Status::Waiting
                && header.state.due.is_none()
                && self.is_stuck(&ledger)
            {
                match self.original.cancelling() {
                    Some((reason, _)) if !self.asked_to_end => {
                        self.fork.request_cancel(reason).await?;
                        self.asked_to_end = true;
                    }
                    _ => return self.fork.cancel("it waits for what the original never got").await.map(drop),
                }
            }
            tokio::select! {
                biased;
                ended = self.fork.outcome() => return ended.map(drop),
                () = core.clock.until(core.clock.now().after(PACE)) => {}
            }
        }
    }

    /// Delivers the next payloads of the original to the hooks that the fork has opened. Gives whether there were any.
    async fn feed(&mut self, fork: &Ledger) -> Result<bool> {
        let mut fed = false;
        for (visit, record) in fork.records() {
            let VisitRecord::Hook { token, state: HookState::Open(_) } = record else { continue };
            let given = self.given.entry(visit.clone()).or_default();
            for payload in received(self.original, visit).iter().skip(*given) {
                let deliver = Deliver {
                    workspace: self.engine.workspace(),
                    token: token.clone(),
                    payload: payload.clone(),
                    id: Some(CallId::new(format!("replay:{}:{visit}:{given}", self.fork.id()))?),
                };
                match self.engine.store().deliver(deliver).await {
                    Ok(_) => (*given, fed) = (*given + 1, true),
                    // It was closed meanwhile.
                    Err(Error::HookNotFound(_)) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(fed)
    }

    /// Whether the fork, which waits, waits for input that will not come.
    fn is_stuck(&self, fork: &Ledger) -> bool {
        let mut hooks = false;
        for (visit, record) in fork.records() {
            match record {
                VisitRecord::Child { outcome: None, .. } => return false,
                VisitRecord::Hook { state: HookState::Open(all), .. } => {
                    if all.len() < self.given.get(visit).copied().unwrap_or_default() {
                        return false;
                    }
                    hooks = true;
                }
                _ => {}
            }
        }
        hooks
    }
}

/// Payloads that a hook has received.
fn received<'a>(ledger: &'a Ledger, visit: &Visit) -> &'a [Payload] {
    match ledger.record_at(visit) {
        Some(VisitRecord::Hook { state, .. }) => match state {
            HookState::Opening(all)
            | HookState::Open(all)
            | HookState::Closed(all)
            | HookState::Released(all) => all,
            HookState::Conflicted(_) => &[],
        },
        _ => &[],
    }
}

/// Compares two ledgers place by place, values included.
fn compare(original: &Recorded, again: &Recorded) -> Vec<ReplayRow> {
    let places = original.places();
    let known: HashSet<&Location> = places.iter().collect();
    let new: Vec<Location> = again.places().into_iter().filter(|place| !known.contains(place)).collect();
    let mut rows: Vec<ReplayRow> =
        places.iter().chain(&new).filter_map(|place| compare_at(original, again, place)).collect();
    let [first, second] = [original, again].map(|side| side.ledger.outcome().map(|outcome| json!(outcome)));
    let verdict = verdict(first.as_ref(), second.as_ref());
    rows.push(ReplayRow {
        path: END.to_owned(),
        kind: ReplayKind::Run,
        original: first,
        replayed: second,
        verdict,
    });
    rows
}

fn compare_at(original: &Recorded, again: &Recorded, place: &Location) -> Option<ReplayRow> {
    let (first, second) = (original.describe(place), again.describe(place));
    if second.is_none() && original.is_carried(place) {
        return None;
    }
    let kinds = (original.kind(place), again.kind(place));
    let kind = kinds.0.or(kinds.1)?;
    let verdict = if kinds.0 == kinds.1 && is_new_each_time(kind, place) {
        ReplayVerdict::Identical
    } else {
        verdict(comparable(kind, first.as_ref()).as_ref(), comparable(kind, second.as_ref()).as_ref())
    };
    Some(ReplayRow { path: place.to_string(), kind, original: first, replayed: second, verdict })
}

fn verdict(original: Option<&Value>, replayed: Option<&Value>) -> ReplayVerdict {
    match (original, replayed) {
        (Some(_), None) => ReplayVerdict::Missing,
        (None, Some(_)) => ReplayVerdict::Added,
        (original, replayed) if original == replayed => ReplayVerdict::Identical,
        _ => ReplayVerdict::Changed,
    }
}

/// Whether it is a time, a random number or an id: those have names that users cannot give.
fn is_new_each_time(kind: ReplayKind, place: &Location) -> bool {
    let Location::Visit(visit) = place else { return false };
    let name = visit.path.as_str().rsplit('/').next().unwrap_or_default();
    kind == ReplayKind::Value && name.starts_with('@')
}

/// Without what cannot be the same twice: a timer's time, a child's id.
fn comparable(kind: ReplayKind, value: Option<&Value>) -> Option<Value> {
    let mut value = value.cloned()?;
    if let (ReplayKind::Timer | ReplayKind::Child, Value::Object(members)) = (kind, &mut value) {
        members.remove("at");
        members.remove("run");
    }
    Some(value)
}
