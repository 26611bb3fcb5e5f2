//! What a driver records, and what must hold in every store at any time.

use super::call::Act;
use super::player::{PlayedDriver, Player, TOKENS, WORKSPACE, failure, label, token, value, visit};
use crate::clock::Time;
use crate::error::Result;
use crate::id::RunId;
use crate::rules::entry::{Class, Entry, Message, PauseReason};
use crate::rules::ledger::{HookState, Ledger, RefusedEntry, VisitRecord};
use crate::rules::path::Name;
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::rules::step::StepState;
use crate::store::FindBy;

impl PlayedDriver {
    /// Records one act; gives the answer of the ledger.
    pub(super) fn act(&mut self, act: &Act, child: RunId, now: Time) -> Result<(), RefusedEntry> {
        let entry = match act {
            Act::Step { path, class } => {
                let (step, attempt) = (visit(*path), self.next_attempt(*path));
                self.ledger.record(Entry::step_started(step, attempt, *class))?;
                Entry::StepCompleted { step: visit(*path), value: value(*path) }
            }
            Act::Begin { path, class } => {
                let attempt = self.next_attempt(*path);
                Entry::step_started(visit(*path), attempt, *class)
            }
            Act::Done { path } => Entry::StepCompleted { step: visit(*path), value: value(*path) },
            Act::FailStep { path, retry } => Entry::StepFailed {
                step: visit(*path),
                attempt: self.open_attempt(*path),
                error: failure(),
                retry_at: retry.then_some(now),
            },
            Act::Doubt { path } => {
                if self.ledger.record_at(&visit(*path)).is_none() {
                    let class = if *path == 0 { Class::Keyed } else { Class::AtMostOnce };
                    self.ledger.record(Entry::step_started(visit(*path), 1, class))?;
                }
                Entry::StepInDoubt { step: visit(*path), reason: "no answer".to_owned() }
            }
            Act::Skip { path } => Entry::StepSkipped { step: visit(*path), reason: "not needed".to_owned() },
            Act::SetTimer { path, millis } => {
                let at = now.after(std::time::Duration::from_millis(u64::from(*millis)));
                Entry::TimerSet { timer: visit(*path), at }
            }
            Act::Fire { path } => Entry::TimerFired { timer: visit(*path) },
            Act::Open { path, token: t } => return self.ledger.open_hook(visit(*path), token(*t)),
            Act::Child { path } => {
                let name = |text| Name::new(text).expect("a plain name");
                return self.ledger.start_child(visit(*path), child, name("order"), name("1"), value(*path));
            }
            Act::Close { path } => Entry::HookClosed { hook: visit(*path) },
            Act::Receive { .. } | Act::ChildEnded { .. } | Act::Note => match self.take_message(act) {
                Some(entry) => entry,
                None => return Ok(()),
            },
            Act::Once { label: l } => {
                Entry::Once { label: label(*l), scope: String::new(), value: value(*l), inside: false }
            }
            Act::Record { path } => Entry::Recorded { at: visit(*path), value: value(*path), failed: None },
            Act::Wait { millis } => {
                let after = |millis| now.after(std::time::Duration::from_millis(u64::from(millis)));
                Entry::Waiting { due: millis.map(after) }
            }
            Act::Pause { doubt: true } => Entry::Paused { reason: PauseReason::InDoubt },
            Act::Pause { doubt: false } => {
                Entry::Paused { reason: PauseReason::Diverged("a step is gone".to_owned()) }
            }
            Act::Complete => Entry::Completed { value: value(1) },
            Act::Fail => Entry::Failed { error: failure() },
            Act::TimeOut => Entry::TimedOut { limit: self.ledger.deadline().unwrap_or(now) },
            Act::Cancel => Entry::Cancelled { reason: "its parent was".to_owned(), by: "parent".to_owned() },
        };
        self.ledger.record(entry)
    }

    fn next_attempt(&self, path: u8) -> u32 {
        match self.ledger.record_at(&visit(path)) {
            Some(VisitRecord::Step(step)) => StepState::next_attempt(Some(step)).unwrap_or(1),
            _ => 1,
        }
    }

    fn open_attempt(&self, path: u8) -> u32 {
        match self.ledger.record_at(&visit(path)) {
            Some(VisitRecord::Step(step)) => step.open_attempt().unwrap_or(0),
            _ => 0,
        }
    }

    /// The entry that takes a fitting message out of the inbox.
    fn take_message(&self, act: &Act) -> Option<Entry> {
        self.inbox.iter().find_map(|arrival| match (act, &arrival.message) {
            (Act::Receive { path }, Message::Delivery { token, payload }) => {
                let mine = matches!(self.ledger.record_at(&visit(*path)), Some(VisitRecord::Hook { token: t, .. }) if t == token);
                mine.then(|| Entry::HookReceived { hook: visit(*path), arrival: arrival.number, payload: payload.clone() })
            }
            (Act::ChildEnded { path }, Message::ChildEnded { child, outcome, .. }) if *child == visit(*path) => {
                Some(Entry::ChildFinished { child: child.clone(), arrival: arrival.number, outcome: outcome.clone() })
            }
            (Act::Note, _) => Some(Entry::Noted { arrival: arrival.number }),
            _ => None,
        })
    }
}

impl Player {
    /// Checks what must hold of every run and token.
    pub(super) async fn check(&self) -> Result<(), String> {
        for id in &self.runs {
            let found = self.find(FindBy::Id(*id)).await.map_err(|e| e.to_string())?;
            if let Some((run, outcome)) = found {
                header(&run)?;
                if outcome.is_some() != run.status().is_terminal() {
                    return Err(format!("{run:?} ended as {outcome:?}"));
                }
                if !run.purged {
                    self.check_history(&run).await?;
                }
            }
        }
        for n in 0..TOKENS as u8 {
            let owner = self.find(FindBy::Token(token(n))).await.map_err(|e| e.to_string())?;
            if owner.as_ref().is_some_and(|(run, _)| run.status().is_terminal()) {
                return Err(format!("token {n} is owned by a run that has ended: {owner:?}"));
            }
        }
        Ok(())
    }

    async fn check_history(&self, run: &Run) -> Result<(), String> {
        let (id, text) = (run.id(), |e: crate::Error| e.to_string());
        let lines = self.store.ledger(WORKSPACE, id, 1).await.map_err(text)?;
        let numbered = lines.iter().zip(1..).all(|(line, number)| line.number == number);
        if !numbered || lines.len() as u64 != run.state.version {
            return Err(format!("{run:?} has the entries {lines:?}"));
        }
        let ledger = Ledger::read(run.clone(), lines.into_iter().map(|line| line.entry))
            .map_err(|refused| format!("{id} cannot be read: {refused}"))?;
        if ledger.run().status() != run.status() {
            return Err(format!(
                "{id} is {} by its header, {} by its ledger",
                run.status(),
                ledger.run().status()
            ));
        }
        let inbox = self.store.inbox(WORKSPACE, id, 1).await.map_err(text)?;
        if !inbox.windows(2).all(|pair| pair[0].number < pair[1].number)
            || inbox.last().is_some_and(|last| last.number > run.arrivals)
        {
            return Err(format!("{run:?} has the inbox {inbox:?}"));
        }
        self.check_hooks(run, &ledger).await
    }

    async fn check_hooks(&self, run: &Run, ledger: &Ledger) -> Result<(), String> {
        for path in 0..4 {
            if let Some(VisitRecord::Hook { token, state: HookState::Open(_) }) =
                ledger.record_at(&visit(path))
                && !run.status().is_terminal()
            {
                let owner = self.find(FindBy::Token(token.clone())).await.map_err(|e| e.to_string())?;
                if owner.as_ref().map(|(owner, _)| owner.id()) != Some(run.id()) {
                    return Err(format!("{} believes to own {token}, which is owned by {owner:?}", run.id()));
                }
            }
        }
        Ok(())
    }
}

/// A run that has not ended has a driver or becomes due; one that has ended has neither.
fn header(run: &Run) -> Result<(), String> {
    let state = &run.state;
    let (driven, due) = (state.node.is_some(), state.due.is_some());
    let sound = match state.status {
        Status::Pending => !driven && due,
        Status::Running => driven != due,
        Status::Waiting => !driven,
        _ => !driven && !due,
    };
    let ended = state.status.is_terminal();
    match sound && state.ended.is_some() == ended && state.purge.is_some() == ended {
        true => Ok(()),
        false => Err(format!("{run:?} will never be driven, or is driven after its end")),
    }
}
