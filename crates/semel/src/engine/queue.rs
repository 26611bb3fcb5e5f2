//! The store's side of queues: tasks are taken, and what came of them is reported. Each report is one commit, made at the
//! version of the claim, so that a worker that has lost its task is refused.

use std::fmt;
use std::sync::Arc;

use super::chance;
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Claim;
use crate::rules::control::{Action, Control};
use crate::rules::entry::{Entry, Failure, Message};
use crate::rules::json::Payload;
use crate::rules::ledger::Ledger;
use crate::rules::path::Name;
use crate::rules::queue::{self, Moment, Overdue, Report, Task};
use crate::store::{Arrival, Claimed, Find, FindBy, Numbered, Store};

/// Tasks with more input than this, together, are not given in one answer. A first one always is.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// How often the end of a run that cannot be handed out is sent.
const TRIES: usize = 3;

/// A worker asks for tasks.
#[derive(Clone, Debug)]
pub struct Take {
    /// The tenant.
    pub workspace: WorkspaceId,
    /// The worker. Its lease must be alive.
    pub node: NodeId,
    /// What it can do.
    pub queues: Vec<Name>,
    /// At most this many.
    pub limit: usize,
}

/// What there was to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Each of them is the worker's until its lease ends.
    pub tasks: Vec<Task>,
    /// When the next task of these queues becomes due. What is due already does not count.
    pub next_due: Option<Time>,
    /// Whether there was more than is given, or something that could not be given.
    pub more: bool,
}

/// A task in a worker's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef {
    /// The tenant.
    pub workspace: WorkspaceId,
    /// The run that stands for it.
    pub run: RunId,
    /// The version of the claim.
    pub fence: u64,
}

/// A task as it was handed out, to be reported on: see [`Queues::handed_out`].
#[derive(Clone, Debug)]
pub struct HandedOut {
    task: TaskRef,
    node: NodeId,
    /// When it was claimed.
    claimed: Time,
    /// The ledger up to the claim.
    ledger: Ledger,
    /// What was written after the claim.
    after: Vec<Entry>,
}

impl HandedOut {
    /// The node that it was handed to.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Whether this very report stands in the ledger already.
    pub fn is_reported(&self, report: &Report) -> bool {
        queue::is_reported(&self.after, report)
    }

    /// The error of a report by a worker that does not have the task.
    pub fn lost(&self) -> Error {
        Error::Concurrency { run: self.task.run, expected: self.task.fence }
    }
}

/// The queues of a store.
#[derive(Clone)]
pub struct Queues {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Queues {
    /// Those of this store. The clock says when a failed task is tried again.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Takes due tasks for a worker. If the answer is lost, they are due again when the worker's lease ends: a worker that
    /// got none gives its lease up and goes on under another id, as engines do.
    pub async fn take(&self, take: Take) -> Result<Taken> {
        let Take { workspace, node, queues, limit } = take;
        let drives = |queue: &Name| -> Result<_> { Ok(queue::drives(workspace, queue)?) };
        let workflows = queues.iter().map(drives).collect::<Result<_>>()?;
        let claims = self.store.claim(Claim::new(node, workflows, limit)).await?;
        let mut taken = Taken { next_due: claims.next_due, ..Taken::default() };
        taken.more = claims.runs.len() == limit && limit > 0;
        let mut bytes = 0;
        for claimed in claims.runs {
            let run = claimed.run.id();
            match self.hand(claimed, bytes).await {
                Ok(Some(task)) => {
                    bytes += task.input.text().len();
                    taken.tasks.push(task);
                }
                Ok(None) => taken.more = true,
                // One that is broken must not keep the others from whoever has claimed them.
                Err(error @ Error::Refused { .. }) => self.park(workspace, run, &error).await,
                Err(error) => {
                    tracing::warn!(%error, %run, "a run of a queue is held until its worker's lease ends");
                }
            }
        }
        Ok(taken)
    }

    /// A claimed run as a task; none if it was settled, or given back because the answer is full.
    async fn hand(&self, claimed: Claimed, bytes: usize) -> Result<Option<Task>> {
        match self.hand_at(claimed.clone(), bytes, self.clock.now()).await {
            // Its time is up by this machine's clock, and not by the store's.
            Err(Error::TooEarly { now, .. }) => self.hand_at(claimed, bytes, now).await,
            handed => handed,
        }
    }

    async fn hand_at(&self, claimed: Claimed, bytes: usize, now: Time) -> Result<Option<Task>> {
        let (run, inbox) = (claimed.run.id(), messages(claimed.inbox));
        let refused = |source| Error::Refused { run, source };
        let mut ledger = Ledger::read(claimed.run, claimed.entries.unwrap_or_default()).map_err(refused)?;
        let task = queue::hand(&mut ledger, &inbox, now).map_err(refused)?;
        if task.as_ref().is_some_and(|task| bytes == 0 || bytes + task.input.text().len() <= MOST_BYTES) {
            return Ok(task);
        }
        if task.is_some() {
            ledger.record(Entry::Waiting { due: Some(now) }).map_err(refused)?;
        }
        let Some(commit) = ledger.commit() else { return Ok(None) };
        for left in (0..TRIES).rev() {
            match self.store.commit(commit.clone()).await {
                // Somebody else has it: it is theirs.
                Ok(_) | Err(Error::Concurrency { .. }) => break,
                Err(error @ Error::TooEarly { .. }) => return Err(error),
                Err(error) if left == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    async fn park(&self, workspace: WorkspaceId, run: RunId, error: &Error) {
        tracing::error!(%error, %run, "a run of a queue cannot be handed out; it is paused");
        let by = format!("queue: {error}");
        let control = Control { workspace, run, action: Action::Pause, by, id: None, expected: None };
        if let Err(error) = self.store.control(control).await {
            tracing::error!(%error, %run, "nor can it be paused; it is due again when its worker's lease ends");
        }
    }

    /// The task has this result.
    pub async fn complete(&self, task: TaskRef, value: Payload) -> Result<()> {
        self.report(task, Report::Completed(value)).await
    }

    /// The task has failed. Whether it is tried again is decided by its step.
    pub async fn fail(&self, task: TaskRef, error: Failure) -> Result<()> {
        self.report(task, Report::Failed { error, retry_after: None }).await
    }

    /// What came of a task. Reported again, it is answered as the first time; reported by a worker that has lost the
    /// task, it is refused and counted. So is a report that comes when the time of the task is up.
    pub async fn report(&self, task: TaskRef, report: Report) -> Result<()> {
        let task = self.handed_out(task).await?;
        self.report_on(&task, &report).await.map(drop)
    }

    /// A task as the worker was given it. An error if it was never handed out with this fence.
    pub async fn handed_out(&self, task: TaskRef) -> Result<HandedOut> {
        let TaskRef { workspace, run, fence } = task;
        let found = self.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
        let (header, _) = found.ok_or(Error::RunNotFound(run))?;
        if queue::queue(&header.new.workflow).is_none() {
            return Err(Error::RunNotFound(run));
        }
        let lost = || Error::Concurrency { run, expected: fence };
        let mut lines = self.store.ledger(workspace, run, 1).await?;
        // The ledger as the worker has seen it: a report that comes late is made at that place, and the store refuses it
        // and counts it.
        let after = lines.split_off(lines.len().min(usize::try_from(fence).unwrap_or(usize::MAX)));
        let (node, claimed) = match lines.last() {
            Some(Numbered { number, at, entry: Entry::Claimed { node } }) if *number == fence => (*node, *at),
            _ => return Err(lost()),
        };
        let entry = |line: Numbered| line.entry;
        let read = Ledger::read(header, lines.into_iter().map(entry));
        let ledger = read.map_err(|source| Error::Refused { run, source })?;
        Ok(HandedOut { task, node, claimed, ledger, after: after.into_iter().map(entry).collect() })
    }

    /// What came of a task that was handed out. Gives when it is tried again, if it is and this report said so. A report that
    /// comes when the time of the task is up is refused.
    pub async fn report_on(&self, task: &HandedOut, report: &Report) -> Result<Option<Time>> {
        match self.report_at(task, report, self.clock.now()).await {
            // Its time is up by this machine's clock, and not by the store's.
            Err(Error::TooEarly { now, .. }) => self.report_at(task, report, now).await,
            reported => reported,
        }
    }

    async fn report_at(&self, handed_out: &HandedOut, report: &Report, now: Time) -> Result<Option<Time>> {
        let TaskRef { workspace, run, fence } = handed_out.task;
        let mut ledger = handed_out.ledger.clone();
        let lost = || Error::Concurrency { run, expected: fence };
        let refused = |source| Error::Refused { run, source };
        let overdue = queue::overdue(&ledger, handed_out.claimed, now);
        let counts = match overdue {
            None => report.clone(),
            Some(_) => queue::took_too_long(&ledger),
        };
        let inbox = match &counts {
            Report::Completed(_) => Vec::new(),
            Report::Failed { .. } => messages(self.store.inbox(workspace, run, 1).await?),
        };
        let moment = Moment { now, random: chance(&*self.clock) };
        match overdue {
            Some(Overdue::Run(limit)) => ledger.record(Entry::TimedOut { limit }),
            _ => queue::report(&mut ledger, &counts, &inbox, moment),
        }
        .map_err(refused)?;
        let commit = ledger.commit().ok_or_else(lost)?;
        match self.store.commit(commit).await {
            Ok(_) if overdue.is_some() => Err(lost()),
            Ok(_) => Ok(ledger.run().state.due),
            Err(error @ (Error::Concurrency { .. } | Error::Unknown(_))) => {
                // Without a look it stays what it was: lost, or unknown.
                let Ok(written) = self.entries(workspace, run).await else { return Err(error) };
                let after = written.get(usize::try_from(fence).unwrap_or(usize::MAX)..).unwrap_or_default();
                if queue::is_reported(after, report) { Ok(None) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    async fn entries(&self, workspace: WorkspaceId, run: RunId) -> Result<Vec<Entry>> {
        let lines = self.store.ledger(workspace, run, 1).await?;
        Ok(lines.into_iter().map(|line| line.entry).collect())
    }
}

fn messages(arrivals: Vec<Arrival>) -> Vec<(u64, Message)> {
    arrivals.into_iter().map(|arrival| (arrival.number, arrival.message)).collect()
}
