//! The fold itself: what an entry changes, and which entry may come next.

use super::{Decider, HookState, Ledger, RareFacts, RefusedEntry, VisitRecord};
use crate::rules::attention::Attention;
use crate::rules::entry::{Class, Entry, Resolution};
use crate::rules::json::Payload;
use crate::rules::path::Visit;
use crate::rules::status::Status;

impl Ledger {
    pub(super) fn running(&self, entry: &'static str) -> Result<(), RefusedEntry> {
        match self.run.status() {
            // A fork's inherited entries stand before its first claim.
            Status::Running => Ok(()),
            Status::Pending if self.created().forked_from.is_some() && self.run.state.node.is_none() => {
                Ok(())
            }
            from => Err(RefusedEntry::Status { from, entry: entry.into() }),
        }
    }

    pub(super) fn vacant(&self, visit: &Visit, entry: &'static str) -> Result<(), RefusedEntry> {
        self.not_settled(visit, entry)?;
        match self.record_at(visit) {
            None => Ok(()),
            found => {
                let (entry, found) = (entry.into(), VisitRecord::describe(found).into());
                Err(RefusedEntry::Visit { visit: visit.clone(), entry, found })
            }
        }
    }

    fn unfit(&self, entry: &'static str) -> RefusedEntry {
        RefusedEntry::Status { from: self.run.status(), entry: entry.into() }
    }

    fn become_(&mut self, status: Status, entry: &'static str) -> Result<(), RefusedEntry> {
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

    pub(super) fn apply(&mut self, entry: &Entry) -> Result<(), RefusedEntry> {
        if self.created.is_none() != matches!(entry, Entry::Created(_)) {
            return Err(RefusedEntry::Beginning);
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
    fn apply_run(&mut self, entry: &Entry) -> Result<(), RefusedEntry> {
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
                    return Err(RefusedEntry::Once(label.clone()));
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
                self.pending.beyond().attention = Some(Attention::of(reason));
            }
            // Both lead to PENDING, but from different statuses.
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

    fn end(&mut self, status: Status, entry: &Entry) -> Result<(), RefusedEntry> {
        if status == Status::Completed {
            self.beyond_doubt()?;
        }
        self.become_(status, entry.kind())?;
        self.outcome = entry.outcome();
        self.forget_pause();
        Ok(())
    }

    /// Refuses to complete over an effect whose outcome is unknown: the first one by its path, so that
    /// the same run is refused with the same words.
    fn beyond_doubt(&self) -> Result<(), RefusedEntry> {
        match self.doubts().into_iter().chain(self.begun()).next() {
            Some(visit) => Err(RefusedEntry::InDoubt(visit)),
            None => Ok(()),
        }
    }

    fn forget_pause(&mut self) {
        if let Some(seldom) = &mut self.seldom {
            seldom.pause = None;
        }
    }

    /// Entries about one visit.
    fn apply_visit(&mut self, visit: &Visit, entry: &Entry) -> Result<(), RefusedEntry> {
        let kind = entry.kind();
        self.not_settled(visit, kind)?;
        // Computed before the record is borrowed; whether the run has to be running is known only afterwards.
        let running = self.running(kind);
        let slot = self.records.get_mut(visit);
        let found = slot.as_ref().and_then(|slot| slot.as_ref());
        let asked = matches!(
            found,
            Some(
                VisitRecord::Hook { state: HookState::Opening(_), .. } | VisitRecord::Child { run: None, .. }
            )
        );
        // The store's answer may come when the run is already waiting, and doubt is resolved while the run is paused.
        if !asked && !matches!(entry, Entry::StepResolved { .. }) {
            running?;
        }
        // Only the store opens hooks, and only one that was closed before a restart may be opened again.
        let reopened = match (entry, found) {
            (
                Entry::HookOpened { .. } | Entry::HookConflicted { .. },
                Some(VisitRecord::Hook { token, state: HookState::Closed(all) }),
            ) if self.seldom.as_ref().is_some_and(|seldom| seldom.carried.contains(visit)) => {
                Some(VisitRecord::Hook { token: token.clone(), state: HookState::Released(all.clone()) })
            }
            _ => None,
        };
        let Some(next) = VisitRecord::next(reopened.as_ref().or(found), entry) else {
            let (entry, found) = (kind.into(), VisitRecord::describe(found).into());
            return Err(RefusedEntry::Visit { visit: visit.clone(), entry, found });
        };
        note_outcome(&mut self.seldom, visit, entry);
        match entry {
            Entry::StepStarted { class, .. } if *class != Class::Keyed => {
                self.seldom.get_or_insert_default().intents.insert(visit.clone());
            }
            // Kept together with the beginning of its step: by a restart, and by a fork that has its keys.
            Entry::Recorded { .. } if visit.path.is_decision() => {
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
                let VisitRecord::Timer { at, .. } = next else { unreachable!("a fired timer is a timer") };
                let not_before = &mut self.pending.beyond().not_before;
                *not_before = (*not_before).max(Some(at));
            }
            Entry::HookOpened { token, .. } if !asked => self.seldom.get_or_insert_default().hold(token),
            Entry::HookConflicted { token, .. } if asked => {
                self.seldom.get_or_insert_default().let_go(token);
            }
            Entry::HookClosed { .. } => {
                let VisitRecord::Hook { token, .. } = &next else { unreachable!("a closed hook is a hook") };
                if self.seldom.get_or_insert_default().let_go(token) {
                    self.pending.beyond().closed.push(token.clone());
                }
            }
            Entry::HookReceived { arrival, .. } | Entry::ChildFinished { arrival, .. } => {
                self.pending.beyond().consumed.push(*arrival);
            }
            _ => {}
        }
        // Only inherited entries of a fork come before its first claim.
        if self.run.status() == Status::Pending {
            self.seldom.get_or_insert_default().carried.insert(visit.clone());
        }
        match (slot, next) {
            // A hook's payloads are appended in place, not copied each time.
            (
                Some(Some(VisitRecord::Hook { state: HookState::Open(all), .. })),
                VisitRecord::Hook { state: HookState::Open(mut new), .. },
            ) => {
                all.append(&mut new);
            }
            (
                Some(Some(VisitRecord::Hook { state: open @ HookState::Open(_), .. })),
                VisitRecord::Hook { state: HookState::Closed(_), .. },
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

/// Notes an outcome that a restart or a fork may lose, until the next outcome: what a workflow does next follows from
/// the latest one.
fn note_outcome(seldom: &mut Option<Box<RareFacts>>, visit: &Visit, entry: &Entry) {
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
