//! End what is overdue: runs whose time is up, and tries of remote steps that have taken too long.

use std::sync::Arc;

use crate::clock::Time;
use crate::error::Result;
use crate::id::RunId;
use crate::rules::deadline;
use crate::rules::entry::{Created, Entry, Message};
use crate::rules::ledger::Ledger;
use crate::rules::queue::{self, Overdue, TimeAndChance};
use crate::rules::run::{NewRun, Run, RunState};
use crate::store::tx::{LedgerRow, StoreTx, Verb, race};

use super::read::{entries_of, message_of};

/// A run that the sweep has ended, or whose try it has given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedRun {
    pub(crate) run: RunId,
    pub(crate) parent: Option<RunId>,
    /// What it was created as, if its time limit has ended it.
    pub(crate) timed_out: Option<Arc<NewRun>>,
}

/// Ends up to `limit` runs, or tries, that are overdue.
pub(super) async fn end_overdue<T: StoreTx>(tx: &mut T, limit: usize) -> Result<Vec<EndedRun>> {
    let mut ended = Vec::new();
    for run in tx.overdue(limit).await? {
        let (id, new) = (run.id(), run.new.clone());
        let is_remote = queue::queue(&new.workflow).is_some();
        let over = match queue::queue(&run.new.workflow) {
            // A worker that does a remote step has no ledger, and ends nothing itself.
            Some(_) => end_task(tx, run).await?,
            None => match deadline::decide(&run, tx.now()) {
                Some(end) => end_run(tx, run, end).await.map(|()| true)?,
                None => false,
            },
        };
        let timed_out = (!is_remote).then(|| new.clone());
        ended.extend(over.then_some(EndedRun { run: id, parent: new.parent, timed_out }));
    }
    Ok(ended)
}

/// The end of a run: its last entry, and its state then.
pub(super) type FinalEntry = (Entry, RunState);

pub(super) async fn end_run<T: StoreTx>(tx: &mut T, mut run: Run, (entry, state): FinalEntry) -> Result<()> {
    let expected = run.state.version;
    run.state = state;
    super::finish::end_run(tx, &mut run, expected, &[entry]).await
}

/// A run as it is to be seen at this time: ended, if its time is up.
pub(super) struct SeenRun {
    pub(super) run: Run,
    /// The run as it is stored and its end, if that is still to be written.
    end: Option<(Run, FinalEntry)>,
}

impl SeenRun {
    /// Runs of queues are left to the sweep: their headers do not tell.
    pub(super) fn at(run: Run, now: Time) -> Self {
        let of_queue = queue::queue(&run.new.workflow).is_some();
        match deadline::decide(&run, now).filter(|_| !of_queue) {
            None => Self { run, end: None },
            Some(end) => Self { run: Run { state: end.1.clone(), ..run.clone() }, end: Some((run, end)) },
        }
    }

    /// Its id, if its time is up and the store does not know it yet.
    pub(super) fn overdue(&self) -> Option<RunId> {
        self.end.as_ref().map(|(run, _)| run.id())
    }

    /// Writes its end, if its time is up. It comes before everything else that a verb writes, and after everything that may
    /// refuse the verb.
    pub(super) async fn settle<T: StoreTx>(self, tx: &mut T) -> Result<Run> {
        if let Some((run, end)) = self.end {
            end_run(tx, run, end).await?;
        }
        Ok(self.run)
    }
}

/// Ends a run of a queue, or its try. If it is neither's time, only the time of the next look was wrong: a report does not
/// set it anew.
async fn end_task<T: StoreTx>(tx: &mut T, mut run: Run) -> Result<bool> {
    let rows = tx.ledgers(&[run.num], 0).await?;
    let (entries, claimed) = read(&rows)?;
    let Ok(mut ledger) = Ledger::read(run.clone(), entries) else {
        // Its next claim finds out, and says why.
        return look_again(tx, &mut run, None).await.map(|()| false);
    };
    let now = tx.now();
    match queue::overdue(&ledger, claimed, now) {
        Some(Overdue::Run(limit)) => {
            let end = deadline::ended(&run, limit, now);
            end_run(tx, run, end).await.map(|()| true)
        }
        Some(Overdue::Try) if run.state.node.is_some() => {
            let mut inbox: Vec<(u64, Message)> = Vec::new();
            for row in tx.inboxes(&[run.num], 1, usize::MAX).await? {
                inbox.push((row.arrival, message_of(&row)?));
            }
            let report = queue::took_too_long(&ledger);
            let moment = TimeAndChance { now, random: spread(&run) };
            let reported = queue::report(&mut ledger, &report, &inbox, moment);
            let commit = reported.ok().and_then(|()| ledger.commit());
            look_again(tx, &mut run, ledger.deadline()).await?;
            match commit {
                Some(commit) => commit.run(tx).await.map(|_| true),
                None => Ok(false),
            }
        }
        // A try whose worker has died is over: the next worker is given the same one.
        _ => {
            let held = run.state.node.is_some();
            let next = if held { queue::next_deadline(&ledger, claimed) } else { ledger.deadline() };
            look_again(tx, &mut run, next).await.map(|()| false)
        }
    }
}

async fn look_again<T: StoreTx>(tx: &mut T, run: &mut Run, at: Option<Time>) -> Result<()> {
    run.state.deadline = at;
    match tx.save(run.num, run.state.version, &run.state).await? {
        true => Ok(()),
        false => Err(race()),
    }
}

/// The entries of a run, and when it was claimed last.
fn read(rows: &[LedgerRow]) -> Result<(Vec<Entry>, Time)> {
    let (mut entries, mut claimed) = (Vec::new(), Time(0));
    for row in rows {
        let of = entries_of(row)?;
        if of.iter().any(|entry| matches!(entry, Entry::Claimed { .. })) {
            claimed = row.at;
        }
        entries.extend(of);
    }
    Ok((entries, claimed))
}

/// A number below one for the pause before the next try: tries of many runs that end together are spread by their runs' ids.
fn spread(run: &Run) -> f64 {
    f64::from(run.id().0.as_u128() as u32) / (f64::from(u32::MAX) + 1.0)
}

/// When the store has to look at a task that is claimed now, if its tries have a limit. Its first entries are `text`.
pub(super) fn try_ends(run: &Run, first: &LedgerRow, now: Time) -> Result<Option<Time>> {
    // Most have none, and need not be read for that.
    if queue::queue(&run.new.workflow).is_none() || !first.text.contains("timeoutMs") {
        return Ok(None);
    }
    let created = entries_of(first)?.into_iter().next();
    let limit = |created: &Created| queue::try_limit(created);
    Ok(match created {
        Some(Entry::Created(created)) => limit(&created).map(|limit| now.after(limit)),
        _ => None,
    })
}
