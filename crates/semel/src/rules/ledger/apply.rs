//! The fold itself: what an entry changes, and which one may come next.

use super::{Decider, HookState, Ledger, Record, Refused, Seldom};
use crate::rules::entry::{Class, Entry, Resolution};
use crate::rules::json::Payload;
use crate::rules::path::Visit;
use crate::rules::status::Status;

impl Ledger {
    pub(super) fn running(&self, entry: &'static str) -> Result<(), Refused> {
        match self.run.status() {
            // A fork's inherited entries stand before its first claim.
            Status::Running => Ok(()),
            Status::Pending if self.created().forked_from.is_some() && self.run.state.node.is_none() => {
                Ok(())
            }
            from => Err(Refused::Status { from, entry: entry.into() }),
        }
    }

    pub(super) fn vacant(&self, visit: &Visit, entry: &'static str) -> Result<(), Refused> {
        self.not_settled(visit, entry)?;
        match self.record_at(visit) {
            None => Ok(()),
            found => {
                let (entry, found) = (entry.into(), Record::describe(found).into());
                Err(Refused::Visit { visit: visit.clone(), entry, found })
            }
        }
    }

    fn unfit(&self, entry: &'static str) -> Refused {
        Refused::Status { from: self.run.status(), entry: entry.into() }
    }

    fn become_(&mut self, status: Status, entry: &'static str) -> Result<(), Refused> {
        if !self.run.status().may_become(status) {
            return Err(self.unfit(entry));
        }
        self.run.state.status = status;
        self.run.state.due = None;
        if let Some(driver) = self.run.state.node.take() {
            self.pending.beyond().driver = Some(driver);
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), Refused> {
        if self.created.is_none() != matches!(entry, Entry::Created(_)) {
            return Err(Refused::Beginning);
        }
        match entry.visit() {
            Some(visit) => self.apply_visit(visit, entry)?,
            None => self.apply_run(entry)?,
        }
        self.run.state.version += 1;
        self.weight += entry.weight();
        Ok(())
    }

    /// Entries about the run as a whole.
    fn apply_run(&mut self, entry: &Entry) -> Result<(), Refused> {
        let kind = entry.kind();
        match entry {
            Entry::Created(created) => {
                self.deadline = created.deadline;
                self.created = Some(created.clone());
            }
            Entry::Claimed { node } => {
                self.become_(Status::Running, kind)?;
                self.run.state.node = Some(*node);
                self.claims = (self.claims.0 + 1, self.run.state.version + 1);
            }
            Entry::Once { label, scope, value, .. } => {
                self.running(kind)?;
                let (place, seldom) = ((scope.clone(), label.clone()), self.seldom.get_or_insert_default());
                if seldom.once.contains_key(&place) {
                    return Err(Refused::Once(label.clone()));
                }
                let value = if seldom.settled.is_some() { Payload::null() } else { value.clone() };
                seldom.once.insert(place, value);
                seldom.fleeting = None;
            }
            Entry::Noted { arrival } | Entry::KeyReleased { arrival: Some(arrival), .. } => {
                self.running(kind)?;
                self.pending.beyond().consumed.push(*arrival);
            }
            Entry::Cancelling { arrival, reason, by } => {
                self.running(kind)?;
                self.seldom
                    .get_or_insert_default()
                    .cancelling
                    .get_or_insert_with(|| (reason.clone(), by.clone()));
                self.pending.beyond().consumed.push(*arrival);
            }
            Entry::Waiting { due } => {
                self.become_(Status::Waiting, kind)?;
                self.run.state.due = *due;
                self.pending.beyond().due = *due;
            }
            Entry::Paused { reason } => {
                self.become_(Status::Paused, kind)?;
                self.seldom.get_or_insert_default().pause = Some(reason.clone());
            }
            // Both lead to PENDING, but each from its own states.
            Entry::Resumed { .. } if self.run.status().is_terminal() => return Err(self.unfit(kind)),
            Entry::Restarted { .. } if !self.run.status().is_terminal() => return Err(self.unfit(kind)),
            Entry::Resumed { .. } => {
                self.become_(Status::Pending, kind)?;
                self.forget_pause();
            }
            Entry::Completed { .. } => self.end(Status::Completed, entry)?,
            Entry::Failed { .. } => self.end(Status::Failed, entry)?,
            Entry::Cancelled { .. } => self.end(Status::Cancelled, entry)?,
            Entry::TimedOut { limit } => {
                self.end(Status::TimedOut, entry)?;
                let not_before = &mut self.pending.beyond().not_before;
                *not_before = (*not_before).max(Some(*limit));
            }
            Entry::Restarted { from, deadline, .. } => {
                self.become_(Status::Pending, kind)?;
                self.restart(*from);
                self.deadline = *deadline;
            }
            Entry::KeyReleased { arrival: None, .. } => {}
            _ => unreachable!("every other entry has a visit"),
        }
        Ok(())
    }

    fn end(&mut self, status: Status, entry: &Entry) -> Result<(), Refused> {
        if status == Status::Completed {
            self.beyond_doubt()?;
        }
        self.become_(status, entry.kind())?;
        self.outcome = entry.outcome();
        self.forget_pause();
        Ok(())
    }

    /// Refuses to complete over an effect of which nobody knows whether it took place: the first one by its path, so that
    /// the same run is refused with the same words.
    fn beyond_doubt(&self) -> Result<(), Refused> {
        match self.doubts().into_iter().chain(self.begun()).next() {
            Some(visit) => Err(Refused::InDoubt(visit)),
            None => Ok(()),
        }
    }

    fn forget_pause(&mut self) {
        if let Some(seldom) = &mut self.seldom {
            seldom.pause = None;
        }
    }

    /// Entries about one visit.
    fn apply_visit(&mut self, visit: &Visit, entry: &Entry) -> Result<(), Refused> {
        let kind = entry.kind();
        self.not_settled(visit, kind)?;
        // Before the record is borrowed; who does not have to run is known only afterwards.
        let running = self.running(kind);
        let slot = self.records.get_mut(visit);
        let found = slot.as_ref().and_then(|slot| slot.as_ref());
        let asked = matches!(
            found,
            Some(Record::Hook { state: HookState::Opening(_), .. } | Record::Child { run: None, .. })
        );
        // The store's answer may come when the run waits already, and doubt is resolved while it is paused.
        if !asked && !matches!(entry, Entry::StepResolved { .. }) {
            running?;
        }
        // Only the store opens hooks, and only one that an earlier life has closed may be opened again.
        let reopened = match (entry, found) {
            (
                Entry::HookOpened { .. } | Entry::HookConflicted { .. },
                Some(Record::Hook { token, state: HookState::Closed(all) }),
            ) if self.seldom.as_ref().is_some_and(|seldom| seldom.carried.contains(visit)) => {
                Some(Record::Hook { token: token.clone(), state: HookState::Released(all.clone()) })
            }
            _ => None,
        };
        let Some(next) = Record::next(reopened.as_ref().or(found), entry) else {
            let (entry, found) = (kind.into(), Record::describe(found).into());
            return Err(Refused::Visit { visit: visit.clone(), entry, found });
        };
        note_outcome(&mut self.seldom, visit, entry);
        match entry {
            Entry::StepStarted { class, .. } if *class != Class::Keyed => {
                self.seldom.get_or_insert_default().intents.insert(visit.clone());
            }
            Entry::Recorded { failed, .. } if visit.path.is_users() => {
                let decider = match failed {
                    Some(at) => Some(Decider::Outcome(at.clone())),
                    None => self.seldom.as_ref().and_then(|seldom| seldom.decider()),
                };
                if let Some(decider) = decider {
                    self.seldom.get_or_insert_default().races.insert(visit.clone(), decider);
                }
            }
            Entry::StepInDoubt { .. } => self.doubts += 1,
            Entry::StepResolved { .. } => self.doubts -= 1,
            Entry::TimerFired { .. } => {
                let Record::Timer { at, .. } = next else { unreachable!("a fired timer is a timer") };
                let not_before = &mut self.pending.beyond().not_before;
                *not_before = (*not_before).max(Some(at));
            }
            Entry::HookOpened { token, .. } if !asked => self.seldom.get_or_insert_default().hold(token),
            Entry::HookConflicted { token, .. } if asked => {
                self.seldom.get_or_insert_default().let_go(token);
            }
            Entry::HookClosed { .. } => {
                let Record::Hook { token, .. } = &next else { unreachable!("a closed hook is a hook") };
                if self.seldom.get_or_insert_default().let_go(token) {
                    self.pending.beyond().closed.push(token.clone());
                }
            }
            Entry::HookReceived { arrival, .. } | Entry::ChildFinished { arrival, .. } => {
                self.pending.beyond().consumed.push(*arrival);
            }
            _ => {}
        }
        // Only what a fork inherits stands before its first claim.
        if self.run.status() == Status::Pending {
            self.seldom.get_or_insert_default().carried.insert(visit.clone());
        }
        match (slot, next) {
            // A hook's payloads are added to, not copied each time.
            (
                Some(Some(Record::Hook { state: HookState::Open(all), .. })),
                Record::Hook { state: HookState::Open(mut new), .. },
            ) => {
                all.append(&mut new);
            }
            (
                Some(Some(Record::Hook { state: open @ HookState::Open(_), .. })),
                Record::Hook { state: HookState::Closed(_), .. },
            ) => {
                let HookState::Open(all) = std::mem::replace(open, HookState::Released(Vec::new())) else {
                    unreachable!("matched")
                };
                *open = HookState::Closed(all);
            }
            (Some(slot), next) => *slot = Some(next),
            (None, next) => self.put(visit, next),
        }
        self.slim_down(visit);
        Ok(())
    }
}

/// Notes an outcome that a restart or a fork may not have, until the next outcome: what a workflow does next follows from
/// the latest one.
fn note_outcome(seldom: &mut Option<Box<Seldom>>, visit: &Visit, entry: &Entry) {
    match entry {
        Entry::StepFailed { retry_at: None, .. }
        | Entry::StepResolved { resolution: Resolution::GiveUp(_), .. }
        | Entry::HookConflicted { .. }
        | Entry::ChildFinished { .. } => seldom.get_or_insert_default().fleeting = Some(visit.clone()),
        Entry::StepCompleted { .. }
        | Entry::StepSkipped { .. }
        | Entry::StepInDoubt { .. }
        | Entry::TimerFired { .. }
        | Entry::HookReceived { .. } => {
            if let Some(seldom) = seldom {
                seldom.fleeting = None;
            }
        }
        _ => {}
    }
}
