//! Operator actions on a run.

use crate::clock::Time;
use crate::error::{Error, Result};
use crate::rules::control::{self, Action, Control, Controlled, Fork};
use crate::rules::deliver::PastCall;
use crate::rules::entry::{Created, Entry, Message, PauseReason, Resolution, RestartFrom};
use crate::rules::key::Key;
use crate::rules::ledger::{Ledger, Lineage, Refused};
use crate::rules::path::Visit;
use crate::rules::run::{NewRun, Run};
use crate::rules::start::{Frame, created_run};
use crate::rules::status::Status;
use crate::sabotage::{self, Bug};
use crate::store::tx::{CallAt, Tx, Verb, race};

use super::read::{entries_of, latest};
use super::start::append_at;

impl Verb for Control {
    type Answer = Controlled;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Controlled> {
        let run = tx.run(self.run).await?.filter(|run| run.new.workspace == self.workspace);
        let run = run.ok_or(Error::RunNotFound(self.run))?;
        if let Some(done) = self.repeated(tx, &run).await? {
            return Ok(done);
        }
        if let Some(expected) = self.expected.filter(|expected| *expected != run.state.version) {
            return Err(Error::Concurrency { run: self.run, expected });
        }
        let controlled = match &self.action {
            Action::Resolve { step, resolution } => self.resolve(tx, run, step, resolution).await?,
            Action::Fork(fork) => self.fork(tx, run, fork).await?,
            Action::RequestCancel { reason } => self.ask_to_end(tx, run, reason).await?,
            release @ Action::ReleaseKey if release.goes_to_inbox(run.status()) => {
                self.release_driven(tx, run).await?
            }
            action => self.act(tx, run, action).await?,
        };
        self.remember(tx, &controlled).await?;
        Ok(controlled)
    }
}

impl Control {
    /// The answer to a call that was accepted before under this id.
    async fn repeated<T: Tx>(&self, tx: &mut T, run: &Run) -> Result<Option<Controlled>> {
        let Some(id) = &self.id else { return Ok(None) };
        let Some(past) = tx.call(self.workspace, Self::CALL_SCOPE, id).await? else { return Ok(None) };
        let past = self.repeats(&past, id)?;
        let now = if past.run == run.id() {
            run.clone()
        } else {
            tx.run(past.run).await?.ok_or(Error::RunNotFound(past.run))?
        };
        Ok(Some(Controlled { run: now, changed: false, repeated: true }))
    }

    async fn remember<T: Tx>(&self, tx: &mut T, controlled: &Controlled) -> Result<()> {
        let Some(id) = &self.id else { return Ok(()) };
        let run = &controlled.run;
        let call = PastCall { run: run.id(), fingerprint: self.fingerprint(), result: run.state.version };
        let at = CallAt { workspace: self.workspace, scope: Self::CALL_SCOPE, id };
        match tx.insert_call(at, run.num, &call, None).await? {
            true => Ok(()),
            false => Err(race()),
        }
    }

    async fn act<T: Tx>(&self, tx: &mut T, mut run: Run, action: &Action) -> Result<Controlled> {
        let Some((mut entry, mut state)) = control::decide(&run, action, &self.by, tx.now())? else {
            let wins = matches!(action, Action::Cancel { .. }) && sabotage::commits(Bug::EveryCancelWins);
            return Ok(Controlled { run, changed: wins, repeated: false });
        };
        if let Entry::Restarted { deadline, .. } = &mut entry {
            *deadline = deadline_from_now(tx, &run).await?;
            state.deadline = *deadline;
        }
        if matches!(entry, Entry::Resumed { .. }) {
            refuse_doubts(tx, &run).await?;
            // One that was to begin later still does.
            let not_before = created(tx, &run).await?.and_then(|created| created.not_before);
            state.due = state.due.max(not_before);
        }
        let expected = run.state.version;
        let ends = state.status.is_terminal() && !run.status().is_terminal();
        run.state = state;
        if ends {
            super::finish::end_run(tx, &mut run, expected, &[entry]).await?;
        } else {
            append_at(tx, &run, expected, &[entry]).await?;
            super::finish::leave_onces(tx, &run).await?;
        }
        Ok(Controlled { run, changed: true, repeated: false })
    }

    /// Puts the wish into the inbox. The run is not taken away from its driver: it is the driver's to see it through.
    async fn ask_to_end<T: Tx>(&self, tx: &mut T, mut run: Run, reason: &str) -> Result<Controlled> {
        if sabotage::commits(Bug::WishForgotten) {
            let changed = !run.status().is_terminal();
            return Ok(Controlled { run, changed, repeated: false });
        }
        let message = Message::CancelRequested { reason: reason.to_owned(), by: self.by.clone() };
        let arrived = tx.arrive(run.num, &message).await?;
        run.arrivals = arrived.unwrap_or(run.arrivals);
        Ok(Controlled { run, changed: arrived.is_some(), repeated: false })
    }

    /// Frees the key of a driven run. Its ledger is left alone, so that the driver's next commit fits: the driver finds the
    /// message and records the release.
    async fn release_driven<T: Tx>(&self, tx: &mut T, mut run: Run) -> Result<Controlled> {
        if !run.state.holds_key {
            return Ok(Controlled { run, changed: false, repeated: false });
        }
        run.state.holds_key = false;
        if !tx.save(run.num, run.state.version, &run.state).await? {
            return Err(race());
        }
        let message = Message::KeyReleased { by: self.by.clone() };
        run.arrivals = tx.arrive(run.num, &message).await?.ok_or_else(race)?;
        Ok(Controlled { run, changed: true, repeated: false })
    }

    async fn resolve<T: Tx>(
        &self,
        tx: &mut T,
        mut run: Run,
        step: &Visit,
        resolution: &Resolution,
    ) -> Result<Controlled> {
        if run.purged {
            return Err(Error::RunFinished { run: run.id(), status: run.status() });
        }
        let resolution = match resolution {
            Resolution::Happened(_) if sabotage::commits(Bug::HappenedIgnored) => &Resolution::DidNotHappen,
            resolution => resolution,
        };
        let refused = |source| Error::Refused { run: self.run, source };
        let mut ledger = Ledger::read(run.clone(), ledger_of(tx, &run).await?).map_err(refused)?;
        let resolved =
            Entry::StepResolved { step: step.clone(), resolution: resolution.clone(), by: self.by.clone() };
        ledger.record(resolved.clone()).map_err(refused)?;
        let (expected, mut entries) = (run.state.version, vec![resolved]);
        // The last doubt gone, the run that was paused over it goes on.
        let goes_on = !ledger.is_in_doubt() && ledger.pause() == Some(&PauseReason::InDoubt);
        if goes_on {
            run.state = control::moved(&run, Status::Pending, tx.now());
            entries.push(Entry::Resumed { by: self.by.clone() });
            run.state.version = expected + entries.len() as u64;
        } else {
            run.state = control::noted(&run, 1, tx.now());
        }
        append_at(tx, &run, expected, &entries).await?;
        Ok(Controlled { run, changed: true, repeated: false })
    }

    async fn fork<T: Tx>(&self, tx: &mut T, run: Run, fork: &Fork) -> Result<Controlled> {
        if run.purged {
            return Err(Error::RunFinished { run: run.id(), status: run.status() });
        }
        let entries = ledger_of(tx, &run).await?;
        let at = fork.at.unwrap_or(u64::MAX).max(1);
        let inherited = Ledger::inherited(&run, &entries, at, fork.lineage)
            .map_err(|source| Error::Refused { run: self.run, source })?;
        let Some(Entry::Created(source)) = entries.first() else { return Err(race()) };
        let created = Created {
            key: match &fork.key {
                Some(key) => key.clone(),
                None => Key::new(fork.run.to_string())?,
            },
            lineage: match fork.lineage {
                Lineage::Inherited => run.new.lineage,
                Lineage::Fresh if sabotage::commits(Bug::FreshForkSharesKeys) => run.new.lineage,
                Lineage::Fresh => fork.run,
            },
            not_before: None,
            deadline: None,
            parent: None,
            forked_from: Some((run.id(), at.min(run.state.version))),
            ..(**source).clone()
        };
        let (workspace, retention) = (run.new.workspace, run.new.retention);
        let frame = Frame { id: fork.run, workspace, fingerprint: run.new.fingerprint, retention };
        let now = tx.now();
        let (new, mut state, mut entries) = created_run(created, &frame, now, now, None);
        entries.extend(inherited);
        state.version = entries.len() as u64;
        if let Some(owner) = in_the_way(tx, &new).await? {
            return Err(Error::DuplicateRun { owner: owner.id(), status: owner.status() });
        }
        let run = super::start::insert(tx, new, state, &entries).await?.ok_or_else(race)?;
        Ok(Controlled { run, changed: true, repeated: false })
    }
}

/// Refuses to resume a run that is paused because of steps in doubt: its driver could only pause it again.
async fn refuse_doubts<T: Tx>(tx: &mut T, run: &Run) -> Result<()> {
    let paused = |entry: &Entry| match entry {
        Entry::Paused { reason } => Some(reason.clone()),
        _ => None,
    };
    if latest(tx, run.num, paused).await? != Some(PauseReason::InDoubt) {
        return Ok(());
    }
    let refused = |source| Error::Refused { run: run.id(), source };
    let doubts = Ledger::read(run.clone(), ledger_of(tx, run).await?).map_err(refused)?.doubts();
    match doubts.is_empty() {
        true => Ok(()),
        false => Err(refused(Refused::Doubts(doubts))),
    }
}

/// Restarts a failed run from its failure.
pub(super) async fn restart<T: Tx>(tx: &mut T, run: &mut Run, by: &str) -> Result<()> {
    let moved = control::decide(run, &Action::Restart(RestartFrom::Failure), by, tx.now())?;
    let (mut entry, mut state) = moved.expect("a failed run can be restarted");
    if let Entry::Restarted { deadline, .. } = &mut entry {
        *deadline = deadline_from_now(tx, run).await?;
        state.deadline = *deadline;
    }
    let expected = run.state.version;
    run.state = state;
    append_at(tx, run, expected, &[entry]).await
}

/// The deadline of a run that begins again: it has as much time as it had at first.
async fn deadline_from_now<T: Tx>(tx: &mut T, run: &Run) -> Result<Option<Time>> {
    let deadline = created(tx, run).await?.and_then(|created| created.deadline);
    let allowed = deadline.map(|deadline| deadline.0.saturating_sub(run.new.created.0));
    Ok(allowed.map(|millis| Time(tx.now().0.saturating_add(millis))))
}

/// What a run was created with; nothing once its history is forgotten.
async fn created<T: Tx>(tx: &mut T, run: &Run) -> Result<Option<Box<Created>>> {
    let first = tx.ledger_first(run.num).await?.as_ref().map(entries_of).transpose()?;
    Ok(first.and_then(|entries| entries.into_iter().next()).and_then(|entry| match entry {
        Entry::Created(created) => Some(created),
        _ => None,
    }))
}

/// The run that has the id or the key of one that is to be made. A key that is remembered no more is free, also before
/// the sweep comes by.
async fn in_the_way<T: Tx>(tx: &mut T, new: &NewRun) -> Result<Option<Run>> {
    if let Some(taken) = tx.run(new.id).await? {
        if taken.new.workspace != new.workspace {
            // Whose it is, and how it is doing, is nobody's business.
            return Err(Error::Validation(format!("{} is taken; draw another id", new.id)));
        }
        return Ok(Some(taken));
    }
    let now = tx.now();
    match tx.holder(new.workspace, &new.scope, &new.key).await? {
        Some(mut old) if old.key_expired(now) => {
            old.state.holds_key = false;
            match tx.save(old.num, old.state.version, &old.state).await? {
                true => Ok(None),
                false => Err(race()),
            }
        }
        holder => Ok(holder),
    }
}

async fn ledger_of<T: Tx>(tx: &mut T, run: &Run) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for row in tx.ledgers(&[run.num], 0).await? {
        entries.extend(entries_of(&row)?);
    }
    Ok(entries)
}
