//! Which parts of a run carry over into a restart, and into a fork.

use std::collections::{HashMap, HashSet};

use super::{Decider, HookState, Ledger, Lineage, RefusedEntry, VisitRecord};
use crate::rules::entry::{Entry, Outcome, Resolution, RestartFrom};
use crate::rules::key::Label;
use crate::rules::path::Visit;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::rules::step::StepState;
use crate::sabotage::{self, Bug};

/// What an entry is about, if it is not about the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Subject<'a> {
    Visit(&'a Visit),
    Label(&'a str, &'a Label),
}

impl<'a> Subject<'a> {
    fn of(entry: &'a Entry) -> Option<Self> {
        match entry {
            Entry::Once { label, scope, .. } => Some(Self::Label(scope, label)),
            other => other.visit().map(Self::Visit),
        }
    }
}

/// Folded entries, and which of them belong to the run since its latest restart.
struct Lives<'a> {
    ledger: Ledger,
    /// Where the present life of everything begins: a restart forgets what failed, and the entries from before it would
    /// not fit what came after it.
    began: HashMap<Subject<'a>, usize>,
    /// Doubts that were given up, and the words that did it, before a restart.
    taken_back: HashSet<usize>,
}

impl Lives<'_> {
    fn includes(&self, i: usize, place: &Subject<'_>) -> bool {
        self.began.get(place).is_some_and(|began| i >= *began) && !self.taken_back.contains(&i)
    }

    /// Whether a visit is a race that a fork has to decide anew, because the fork does not have what decided it.
    fn is_undone(&self, race: &Visit, lineage: Lineage, whole: &Self) -> bool {
        let decider = self.ledger.seldom.as_ref().and_then(|seldom| seldom.races.get(race));
        let at = match decider {
            None => return false,
            Some(Decider::Cancelling) => return true,
            Some(Decider::Outcome(at)) => at,
        };
        let then = self.ledger.record_at(at);
        match then {
            // A fork finds a completed child again by its key, if it has the same keys. Another end is tried again.
            Some(VisitRecord::Child { outcome, .. }) => {
                lineage == Lineage::Fresh || !matches!(outcome, Some(Outcome::Completed(_)))
            }
            // Inherited from the whole ledger, in which it may have been tried again.
            Some(_) if lineage == Lineage::Inherited && whole.ledger.is_intent(at) => {
                whole.ledger.record_at(at) != then
            }
            record => !record.is_some_and(VisitRecord::is_settled),
        }
    }
}

impl Ledger {
    /// Forgets what a restart begins anew. Tokens were freed at the end, so hooks are opened again.
    pub(super) fn restart(&mut self, from: RestartFrom) {
        self.outcome = None;
        let seldom = self.seldom.get_or_insert_default();
        seldom.cancelling = None;
        if from == RestartFrom::Beginning {
            seldom.once.clear();
        }
        seldom.fleeting = None;
        let intents = &seldom.intents;
        self.records.retain(|visit, record| {
            let Some(record) = record else { return false };
            if let (RestartFrom::Failure, VisitRecord::Hook { state, .. }) = (from, &mut *record)
                && let HookState::Open(all) | HookState::Released(all) = state
            {
                // Its token was freed at the end; the payloads it had received are kept.
                *state = HookState::Released(std::mem::take(all));
                return true;
            }
            // The doubt was given up in the earlier life. The new life must resolve it before it tries again.
            if let VisitRecord::Step(StepState::GivenUp { attempt, class, .. }) = *record
                && intents.contains(visit)
                && !sabotage::commits(Bug::GiveUpIsForgotten)
            {
                *record = VisitRecord::Step(StepState::Started { attempt, class });
                return true;
            }
            let failed = match record {
                // What was skipped may be needed now that something else has not failed.
                VisitRecord::Step(step) => step.failure().is_some() || *step == StepState::Skipped,
                VisitRecord::Child { outcome, .. } => {
                    !matches!(outcome, Some(Outcome::Completed(_) | Outcome::Purged(Status::Completed)))
                }
                _ => false,
            };
            let kept = from == RestartFrom::Failure && record.is_settled() && !failed;
            kept || (intents.contains(visit) && !failed && !sabotage::commits(Bug::RestartForgetsIntents))
        });
        // A race is kept only with what decided it. The restarted run is not asked to end, and what failed is tried
        // again: its winner has to win anew.
        let records = &mut self.records;
        seldom.races.retain(|race, decider| {
            let stays = match decider {
                Decider::Cancelling => false,
                Decider::Outcome(at) => {
                    records.get(at).and_then(Option::as_ref).is_some_and(VisitRecord::is_settled)
                }
            };
            let stays = stays || sabotage::commits(Bug::RaceOutlivesFailure);
            if !stays {
                records.remove(race);
            }
            stays
        });
        seldom.carried = self.records.keys().cloned().collect();
        seldom.tokens.clear();
        // A keyed step in doubt simply runs again, and its doubt is gone with its record.
        let doubtful = |record: &&VisitRecord| matches!(record, VisitRecord::Step(StepState::InDoubt { .. }));
        self.doubts = self.records.values().flatten().filter(doubtful).count();
    }

    /// The entries of this run that a fork at a version takes over: whatever is settled by then. What is open then
    /// (a begun attempt, a running timer, an owned token) begins anew in the fork. With the lineage a fork also
    /// inherits, from all of the ledger, the steps that must not simply be tried again under the same effect keys.
    pub fn inherited(
        run: &Run,
        entries: &[Entry],
        at: u64,
        lineage: Lineage,
    ) -> Result<Vec<Entry>, RefusedEntry> {
        let whole = Self::lives(run, entries)?;
        let at = entries.len().min(at as usize);
        let then = Self::lives(run, &entries[..at])?;
        let keep = |(i, entry): &(usize, &Entry)| {
            let place = match Subject::of(entry) {
                // A child is found again by its key; its outcome is in an inbox that a fork does not have. What was
                // skipped is skipped again, unless the fork's code needs it.
                _ if matches!(
                    entry,
                    Entry::ChildStarted { .. } | Entry::ChildFinished { .. } | Entry::StepSkipped { .. }
                ) =>
                {
                    return false;
                }
                Some(place @ Subject::Visit(visit))
                    if lineage == Lineage::Inherited && whole.ledger.is_intent(visit) =>
                {
                    return whole.includes(*i, &place);
                }
                Some(place) => place,
                None => return false,
            };
            let settled = match place {
                Subject::Visit(visit) => {
                    let record = then.ledger.record_at(visit);
                    record.is_some_and(VisitRecord::is_settled) && !then.is_undone(visit, lineage, &whole)
                }
                Subject::Label(scope, label) => then.ledger.once(scope, label).is_some(),
            };
            settled && *i < at && then.includes(*i, &place)
        };
        Ok(entries.iter().enumerate().filter(keep).map(|(_, entry)| entry.clone()).collect())
    }

    fn lives<'a>(run: &Run, entries: &'a [Entry]) -> Result<Lives<'a>, RefusedEntry> {
        let (mut ledger, mut began) = (Self::empty(run.clone()), HashMap::new());
        let (mut doubts, mut taken_back) = (HashMap::new(), HashSet::new());
        for (i, entry) in entries.iter().enumerate() {
            match Subject::of(entry) {
                Some(place @ Subject::Visit(visit)) if ledger.record_at(visit).is_none() => {
                    began.insert(place, i);
                }
                Some(place @ Subject::Label(scope, label)) if ledger.once(scope, label).is_none() => {
                    began.insert(place, i);
                }
                _ => {}
            }
            ledger.apply(entry)?;
            match entry {
                Entry::StepInDoubt { step, .. } => drop(doubts.insert(step, (i, None))),
                Entry::StepResolved { step, resolution: Resolution::GiveUp(_), .. } => {
                    doubts.entry(step).and_modify(|(_, given_up)| *given_up = Some(i));
                }
                Entry::StepResolved { step, .. } => drop(doubts.remove(step)),
                Entry::Restarted { .. } => doubts.retain(|step, (doubt, given_up)| {
                    let open =
                        matches!(ledger.record_at(step), Some(VisitRecord::Step(StepState::Started { .. })));
                    taken_back.extend(given_up.filter(|_| open).into_iter().flat_map(|word| [*doubt, word]));
                    given_up.is_none()
                }),
                _ => {}
            }
        }
        Ok(Lives { ledger, began, taken_back })
    }

    /// Whether a visit is a step that must not simply be tried again.
    fn is_intent(&self, visit: &Visit) -> bool {
        let intended = self.seldom.as_ref().is_some_and(|seldom| seldom.intents.contains(visit));
        intended && self.record_at(visit).is_some() && !sabotage::commits(Bug::ForkForgetsIntents)
    }
}
