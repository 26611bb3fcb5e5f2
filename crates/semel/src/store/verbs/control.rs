//! Operator actions on a run.

use crate::error::{Error, Result};
use crate::rules::control::again::{self, AgainFacts, Needs};
use crate::rules::control::{self, Control, ControlAction, Controlled, Fork};
use crate::rules::deliver::PastCall;
use crate::rules::entry::{Created, Entry, Message, Resolution, RestartFrom};
use crate::rules::ledger::Ledger;
use crate::rules::path::Visit;
use crate::rules::run::{NewRun, Run};
use crate::rules::start::{Frame, created_run};
use crate::store::tx::{CallAt, StoreTx, Verb, race};

use super::read::{entries_of, latest};
use super::start::append_at;

impl Verb for Control {
    type Answer = Controlled;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Controlled> {
        let run = tx.run(self.run).await?.filter(|run| run.new.workspace == self.workspace);
        let run = run.ok_or(Error::RunNotFound(self.run))?;
        if let Some(done) = self.repeated(tx, &run).await? {
            return Ok(done);
        }
        if let Some(expected) = self.expected.filter(|expected| *expected != run.state.version) {
            return Err(Error::Concurrency { run: self.run, expected });
        }
        let controlled = match &self.action {
            ControlAction::Resolve { step, resolution } => self.resolve(tx, run, step, resolution).await?,
            ControlAction::Fork(fork) => self.fork(tx, run, fork).await?,
            ControlAction::RequestCancel { reason } => self.ask_to_end(tx, run, reason).await?,
            release @ ControlAction::ReleaseKey if release.goes_to_inbox(run.status()) => {
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
    async fn repeated<T: StoreTx>(&self, tx: &mut T, run: &Run) -> Result<Option<Controlled>> {
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

    async fn remember<T: StoreTx>(&self, tx: &mut T, controlled: &Controlled) -> Result<()> {
        let Some(id) = &self.id else { return Ok(()) };
        let run = &controlled.run;
        let call = PastCall { run: run.id(), fingerprint: self.fingerprint(), result: run.state.version };
        let at = CallAt { workspace: self.workspace, scope: Self::CALL_SCOPE, id };
        match tx.insert_call(at, run.num, &call, None).await? {
            true => Ok(()),
            false => Err(race()),
        }
    }

    async fn act<T: StoreTx>(&self, tx: &mut T, mut run: Run, action: &ControlAction) -> Result<Controlled> {
        let Some(decided) = control::decide(&run, action, &self.by, tx.now())? else {
            return Ok(Controlled { run, changed: false, repeated: false });
        };
        let facts = facts(tx, &run, &decided.0).await?;
        let (entry, state) = again::complete(&run, decided, facts, tx.now())?;
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

    /// Puts the request into the inbox. The run stays with its driver, which runs the clean-up and ends it.
    async fn ask_to_end<T: StoreTx>(&self, tx: &mut T, mut run: Run, reason: &str) -> Result<Controlled> {
        let message = Message::CancelRequested { reason: reason.to_owned(), by: self.by.clone() };
        let arrived = tx.arrive(run.num, &message).await?;
        run.arrivals = arrived.unwrap_or(run.arrivals);
        Ok(Controlled { run, changed: arrived.is_some(), repeated: false })
    }

    /// Frees the key of a driven run. Its ledger is left alone, so that the driver's next commit fits: the driver finds the
    /// message and records the release.
    async fn release_driven<T: StoreTx>(&self, tx: &mut T, mut run: Run) -> Result<Controlled> {
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

    async fn resolve<T: StoreTx>(
        &self,
        tx: &mut T,
        mut run: Run,
        step: &Visit,
        resolution: &Resolution,
    ) -> Result<Controlled> {
        if run.purged {
            return Err(Error::RunFinished { run: run.id(), status: run.status() });
        }
        let refused = |source| Error::Refused { run: self.run, source };
        let mut ledger = Ledger::read(run.clone(), ledger_of(tx, &run).await?).map_err(refused)?;
        let resolved =
            Entry::StepResolved { step: step.clone(), resolution: resolution.clone(), by: self.by.clone() };
        ledger.record(resolved.clone()).map_err(refused)?;
        let expected = run.state.version;
        let (entries, state) = control::resolve::decide(&run, &ledger, resolved, &self.by, tx.now());
        run.state = state;
        append_at(tx, &run, expected, &entries).await?;
        Ok(Controlled { run, changed: true, repeated: false })
    }

    async fn fork<T: StoreTx>(&self, tx: &mut T, run: Run, fork: &Fork) -> Result<Controlled> {
        if run.purged {
            return Err(Error::RunFinished { run: run.id(), status: run.status() });
        }
        let entries = ledger_of(tx, &run).await?;
        let inherited = Ledger::inherited(&run, &entries, control::fork::at(fork), fork.lineage)
            .map_err(|source| Error::Refused { run: self.run, source })?;
        let Some(Entry::Created(source)) = entries.first() else { return Err(race()) };
        let created = control::fork::created(&run, source, fork)?;
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

/// Reads the facts that a decision needs beside the header.
async fn facts<T: StoreTx>(tx: &mut T, run: &Run, entry: &Entry) -> Result<AgainFacts> {
    let needs = Needs::of(entry);
    let doubts = match needs {
        Needs::Doubts => doubts(tx, run).await?,
        Needs::Header | Needs::Created => Vec::new(),
    };
    let created = if needs == Needs::Header { None } else { created(tx, run).await? };
    Ok(AgainFacts { created, doubts })
}

/// The steps in doubt over which a run is paused. The whole ledger is read only if there can be some.
async fn doubts<T: StoreTx>(tx: &mut T, run: &Run) -> Result<Vec<Visit>> {
    let paused = |entry: &Entry| match entry {
        Entry::Paused { reason } => Some(reason.clone()),
        _ => None,
    };
    if !again::is_over_doubts(latest(tx, run.num, paused).await?.as_ref()) {
        return Ok(Vec::new());
    }
    let ledger = Ledger::read(run.clone(), ledger_of(tx, run).await?);
    Ok(ledger.map_err(|source| Error::Refused { run: run.id(), source })?.doubts())
}

/// Restarts a failed run from its failure.
pub(super) async fn restart<T: StoreTx>(tx: &mut T, run: &mut Run, by: &str) -> Result<()> {
    let decided = control::decide(run, &ControlAction::Restart(RestartFrom::Failure), by, tx.now())?;
    let decided = decided.expect("a failed run can be restarted");
    let facts = facts(tx, run, &decided.0).await?;
    let (entry, state) = again::complete(run, decided, facts, tx.now())?;
    let expected = run.state.version;
    run.state = state;
    append_at(tx, run, expected, &[entry]).await
}

/// The first entry of a run: workflow, input, limits. None if its history is forgotten.
async fn created<T: StoreTx>(tx: &mut T, run: &Run) -> Result<Option<Box<Created>>> {
    let first = tx.ledger_first(run.num).await?.as_ref().map(entries_of).transpose()?;
    Ok(first.and_then(|entries| entries.into_iter().next()).and_then(|entry| match entry {
        Entry::Created(created) => Some(created),
        _ => None,
    }))
}

/// The run that has the id or the key of one that is to be made. A key past its retention is free, also before
/// the sweep has run.
async fn in_the_way<T: StoreTx>(tx: &mut T, new: &NewRun) -> Result<Option<Run>> {
    if let Some(taken) = tx.run(new.id).await? {
        if taken.new.workspace != new.workspace {
            // The run of another workspace is not described to this caller.
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

async fn ledger_of<T: StoreTx>(tx: &mut T, run: &Run) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for row in tx.ledgers(&[run.num], 0).await? {
        entries.extend(entries_of(&row)?);
    }
    Ok(entries)
}
