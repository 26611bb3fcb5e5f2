//! What is recorded beside what the code asks for.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::dry::Played;
use super::history::AskedChild;
use super::watch::{Location, Requested};
use super::{ReplayKind, ReplayRow, ReplayVerdict};
use crate::rules::entry::{Entry, Outcome, RestartFrom};
use crate::rules::key::Fingerprint;
use crate::rules::ledger::{HookState, Ledger, VisitRecord};
use crate::rules::path::Visit;
use crate::rules::step::StepState;

/// A recorded run: its ledger, all entries, and the requests for its children.
pub(super) struct Recorded {
    pub(super) ledger: Ledger,
    pub(super) entries: Vec<Entry>,
    pub(super) children: HashMap<Visit, AskedChild>,
}

/// Compares what a run has recorded with what its code asked for in a dry run.
pub(super) fn judge(recorded: &Recorded, played: &Played) -> Vec<ReplayRow> {
    let asked: HashMap<&Location, &Requested> =
        played.asked.iter().map(|(place, asked)| (place, asked)).collect();
    let ended = recorded.ended_by_itself();
    // Bodies of steps are not called.
    let inside = recorded.made_inside();
    // Once a run has ended, what its code waits for is more than it got then.
    let waits: HashSet<&Location> =
        played.waits.iter().filter(|_| ended && played.outcome.is_none()).collect();
    let judged = recorded.places().into_iter().filter_map(|place| {
        let original = recorded.describe(&place);
        let (replayed, verdict) = match asked.get(&place) {
            // Code that no longer asks for a patch has dropped the old branch.
            None if matches!(&place, Location::Visit(visit) if visit.path.is_optional()) => return None,
            None if recorded.is_carried(&place) || inside.contains(&place) => return None,
            None => (None, ReplayVerdict::Missing),
            Some(asked) if recorded.fits(&place, asked) && !waits.contains(&place) => {
                (original.clone(), ReplayVerdict::Identical)
            }
            Some(asked) => (Some(wanted(asked)), ReplayVerdict::Changed),
        };
        Some(ReplayRow { path: place.to_string(), kind: recorded.kind(&place)?, original, replayed, verdict })
    });
    let mut rows: Vec<ReplayRow> = judged.collect();
    let same = rows.iter().all(|row| row.verdict == ReplayVerdict::Identical);
    if ended || !same {
        rows.extend(added(recorded, played));
    }
    rows.extend(recorded.end(played.outcome.as_ref(), same));
    rows
}

/// Rows for requests that have no record. If the run goes on as recorded, these are its future and not a difference.
fn added<'a>(recorded: &'a Recorded, played: &'a Played) -> impl Iterator<Item = ReplayRow> + 'a {
    let waits: HashSet<&Location> = played.waits.iter().collect();
    // A hook is opened whether or not the code waits for it.
    let open = move |(place, asked): &&(Location, Requested)| {
        waits.contains(place) || matches!(asked, Requested::Hook(_))
    };
    let new = |(place, _): &&(Location, Requested)| recorded.kind(place).is_none();
    played.asked.iter().filter(open).filter(new).map(|(place, asked)| ReplayRow {
        path: place.to_string(),
        kind: asked.kind(),
        original: None,
        replayed: Some(wanted(asked)),
        verdict: ReplayVerdict::Added,
    })
}

/// Describes a request without carrying it out.
fn wanted(asked: &Requested) -> Value {
    match asked {
        Requested::Skip => json!({"kind": "step", "skipped": true}),
        Requested::Hook(token) => json!({"kind": "hook", "token": token}),
        Requested::Child { workflow, input } => {
            json!({"kind": "child", "workflow": workflow, "input": input})
        }
        other => json!({"kind": other.kind()}),
    }
}

impl Requested {
    fn kind(&self) -> ReplayKind {
        match self {
            Self::Step | Self::Skip => ReplayKind::Step,
            Self::Timer => ReplayKind::Timer,
            Self::Hook(_) => ReplayKind::Hook,
            Self::Child { .. } => ReplayKind::Child,
            Self::Value | Self::Race(_) => ReplayKind::Value,
            Self::Once => ReplayKind::Once,
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Visit(visit) => visit.fmt(f),
            Self::Once(_, label) => label.fmt(f),
        }
    }
}

impl Location {
    fn of(entry: &Entry) -> Option<Self> {
        match entry {
            Entry::Once { label, scope, .. } => Some(Self::Once(scope.clone(), label.clone())),
            other => other.visit().cloned().map(Self::Visit),
        }
    }
}

impl Recorded {
    /// Everything that stands somewhere now, in the order of the ledger.
    pub(super) fn places(&self) -> Vec<Location> {
        let (mut order, mut life) = (HashMap::new(), 0);
        for (number, entry) in self.entries.iter().enumerate() {
            if matches!(entry, Entry::Restarted { from: RestartFrom::Beginning, .. }) {
                life = number;
            }
            if let Some(place) = Location::of(entry) {
                // What an earlier life did at the same place is not what stands there now.
                let first = order.entry(place).or_insert(number);
                if *first < life {
                    *first = number;
                }
            }
        }
        let mut places: Vec<_> = order.into_iter().filter(|(place, _)| self.kind(place).is_some()).collect();
        places.sort_by_key(|(_, first)| *first);
        places.into_iter().map(|(place, _)| place).collect()
    }

    /// `run_once` values whose latest result was made inside the body of a step.
    fn made_inside(&self) -> HashSet<Location> {
        let mut made = HashSet::new();
        for entry in &self.entries {
            if let (Entry::Once { inside, .. }, Some(place)) = (entry, Location::of(entry)) {
                if *inside {
                    made.insert(place)
                } else {
                    made.remove(&place)
                };
            }
        }
        made
    }

    /// Kind of the record at a place. None if nothing is recorded there.
    pub(super) fn kind(&self, place: &Location) -> Option<ReplayKind> {
        match place {
            Location::Once(scope, label) => self.ledger.once(scope, label).map(|_| ReplayKind::Once),
            Location::Visit(visit) => self.ledger.record_at(visit).map(|record| match record {
                VisitRecord::Step(_) => ReplayKind::Step,
                VisitRecord::Timer { .. } => ReplayKind::Timer,
                VisitRecord::Hook { .. } => ReplayKind::Hook,
                VisitRecord::Child { .. } => ReplayKind::Child,
                VisitRecord::Value(_) => ReplayKind::Value,
            }),
        }
    }

    /// Whether it is from before a restart, or from the run that this one was forked from: the code need not visit
    /// it.
    pub(super) fn is_carried(&self, place: &Location) -> bool {
        match place {
            Location::Visit(visit) => self.ledger.is_carried(visit),
            Location::Once(..) => {
                let number =
                    self.entries.iter().position(|entry| Location::of(entry).as_ref() == Some(place));
                number < self.begins()
            }
        }
    }

    /// Where in the entries the present life begins, if there was an earlier one.
    fn begins(&self) -> Option<usize> {
        let restarted = self.entries.iter().rposition(|entry| matches!(entry, Entry::Restarted { .. }));
        let claimed = || self.entries.iter().position(|entry| matches!(entry, Entry::Claimed { .. }));
        restarted.or_else(|| self.ledger.created().forked_from.and_then(|_| claimed()))
    }

    /// Whether what the code wants there is what stands there.
    fn fits(&self, place: &Location, asked: &Requested) -> bool {
        let Location::Visit(visit) = place else { return matches!(asked, Requested::Once) };
        match (self.ledger.record_at(visit), asked) {
            // Or an earlier life has done what this one does not need.
            (Some(VisitRecord::Step(step)), Requested::Skip) => {
                *step == StepState::Skipped || self.is_carried(place)
            }
            (Some(VisitRecord::Step(step)), Requested::Step) => *step != StepState::Skipped,
            (Some(VisitRecord::Step(step)), Requested::Once) => step.failure().is_some(),
            (Some(VisitRecord::Timer { .. }), Requested::Timer)
            | (Some(VisitRecord::Value(_)), Requested::Value) => true,
            (Some(VisitRecord::Value(winner)), Requested::Race(runners)) => {
                winner.read::<usize>().is_ok_and(|winner| winner < *runners)
            }
            (Some(VisitRecord::Hook { token, .. }), Requested::Hook(wanted)) => token == wanted,
            (Some(VisitRecord::Child { .. }), Requested::Child { workflow, input }) => {
                let asked = Fingerprint::of_start(workflow, input, &[]);
                let asked = asked.map(|print| AskedChild::new(workflow.clone(), print));
                self.children.get(visit).is_none_or(|first| asked.is_ok_and(|asked| asked == *first))
            }
            _ => false,
        }
    }

    /// The record at a place as JSON. None if nothing is recorded there.
    pub(super) fn describe(&self, place: &Location) -> Option<Value> {
        let visit = match place {
            Location::Once(scope, label) => return self.ledger.once(scope, label).map(|value| json!(value)),
            Location::Visit(visit) => visit,
        };
        Some(match self.ledger.record_at(visit)? {
            VisitRecord::Step(step) => describe_step(step),
            VisitRecord::Timer { at, fired } => json!({"at": at, "fired": fired}),
            VisitRecord::Hook { token, state } => match state {
                HookState::Conflicted(owner) => json!({"token": token, "owner": owner}),
                HookState::Opening(all)
                | HookState::Open(all)
                | HookState::Closed(all)
                | HookState::Released(all) => json!({"token": token, "received": all}),
            },
            VisitRecord::Child { run, outcome } => {
                let asked = self.children.get(visit);
                json!({"run": run, "asked": asked, "outcome": outcome})
            }
            VisitRecord::Value(value) => json!(value),
        })
    }

    /// Whether the run's own code ended it, and not an action from outside.
    pub(super) fn ended_by_itself(&self) -> bool {
        match self.ledger.outcome() {
            Some(Outcome::Completed(_) | Outcome::Failed(_)) => true,
            // A workflow that was asked to end is cancelled with the reason of the request, to which it may have added.
            Some(Outcome::Cancelled(_)) => self.entries.iter().any(|entry| match entry {
                Entry::Cancelled { reason, by } => self
                    .ledger
                    .cancelling()
                    .is_some_and(|(asked, asker)| asker == by && reason.starts_with(asked)),
                _ => false,
            }),
            Some(Outcome::TimedOut | Outcome::Purged(_)) | None => false,
        }
    }

    /// The row of the run itself. `same`: whether everything else is as it was.
    fn end(&self, replayed: Option<&Outcome>, same: bool) -> Option<ReplayRow> {
        let original = self.ledger.outcome();
        let by_itself = self.ended_by_itself();
        let (replayed, verdict) = match (original, replayed) {
            (None, None) => return None,
            // It would end so when it goes on.
            (None, Some(_)) if same => return None,
            (None, Some(replayed)) => (Some(replayed), ReplayVerdict::Added),
            // The code has no say in it.
            (Some(original), None) if !by_itself => (Some(original), ReplayVerdict::Identical),
            (Some(_), None) => (None, ReplayVerdict::Missing),
            (Some(original), Some(replayed)) if json!(original) == json!(replayed) => {
                (Some(replayed), ReplayVerdict::Identical)
            }
            (Some(_), Some(replayed)) => (Some(replayed), ReplayVerdict::Changed),
        };
        let [original, replayed] = [original, replayed].map(|outcome| outcome.map(|outcome| json!(outcome)));
        Some(ReplayRow { path: END.to_owned(), kind: ReplayKind::Run, original, replayed, verdict })
    }
}

/// The path of the row about the run itself: no step has this name.
pub(super) const END: &str = "@end";

fn describe_step(step: &StepState) -> Value {
    match step {
        StepState::Completed(value) => json!({"completed": value}),
        StepState::Failed(failure) | StepState::GivenUp { error: failure, .. } => json!({"failed": failure}),
        StepState::Skipped => json!({"skipped": true}),
        StepState::Started { attempt, .. } => json!({"started": attempt}),
        StepState::Retrying { attempt, error, .. } => json!({"retrying": attempt, "error": error}),
        StepState::InDoubt { attempt, .. } => json!({"inDoubt": attempt}),
        StepState::Cleared { attempt } => json!({"cleared": attempt}),
    }
}
