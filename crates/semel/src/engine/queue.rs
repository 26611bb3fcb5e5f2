//! The store's side of queues: workers claim tasks and report their results. Each report is one commit at the version
//! of the claim, so a worker that has lost its task is refused.

use std::fmt;
use std::sync::Arc;

use super::chance;
use crate::clock::{Clock, Time};
use crate::error::{Error, Result};
use crate::id::{NodeId, RunId, WorkspaceId};
use crate::rules::claim::Claim;
use crate::rules::control::{Control, ControlAction};
use crate::rules::entry::{Entry, Failure, Message};
use crate::rules::json::{MAX_BYTES, Payload};
use crate::rules::ledger::Ledger;
use crate::rules::path::Name;
use crate::rules::queue::{self, Assignment, Overdue, Report, TimeAndChance};
use crate::store::{Arrival, Claimed, Find, FindBy, Numbered, Store};

/// Maximum total size in bytes of the inputs in one answer. The first task is always given.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// Size of runs at which a claim takes no more: what it takes fits into the answer.
const CLAIMED_BYTES: usize = MOST_BYTES - MAX_BYTES;
/// Number of times that the end of a run that cannot be handed out is sent.
const TRIES: usize = 3;

/// A worker's request for tasks.
#[derive(Clone, Debug)]
pub struct Take {
    /// Workspace whose tasks the worker may claim.
    pub workspace: WorkspaceId,
    /// The worker. Its lease must be alive.
    pub node: NodeId,
    /// Queues from which it takes tasks.
    pub queues: Vec<Name>,
    /// Maximum number of tasks to claim.
    pub limit: usize,
}

/// Answer to a request for tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignments {
    /// The tasks. Each belongs to the worker until its lease ends.
    pub tasks: Vec<Assignment>,
    /// Time at which the next task of these queues becomes due. Tasks that are already due do not count.
    pub next_due: Option<Time>,
    /// Whether more tasks were due than were given, or some could not be given.
    pub more: bool,
}

/// Reference to a task that a worker has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignmentRef {
    /// Workspace of the worker and the task.
    pub workspace: WorkspaceId,
    /// The run that represents the task.
    pub run: RunId,
    /// Version of the task's run after the claim. A report with another fence is refused.
    pub fence: u64,
}

/// A task as it was handed out, for a report on it: see [`Queues::handed_out`].
#[derive(Clone, Debug)]
pub struct HandedOut {
    task: AssignmentRef,
    node: NodeId,
    /// Time of the claim.
    claimed: Time,
    /// The ledger up to the claim.
    ledger: Ledger,
    /// Entries that were written after the claim.
    after: Vec<Entry>,
}

impl HandedOut {
    /// The node to which it was handed.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Whether the ledger already has this very report.
    pub fn is_reported(&self, report: &Report) -> bool {
        queue::is_reported(&self.after, report)
    }

    /// The error for a report by a worker that does not have the task.
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
    /// Queues of this store. The clock says when a failed task is tried again.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Claims due tasks for a worker. If the answer is lost, they are due again when the worker's lease ends: a
    /// worker that got no answer gives up its lease and goes on under another id, as engines do.
    pub async fn take(&self, take: Take) -> Result<Assignments> {
        let Take { workspace, node, queues, limit } = take;
        let drives = |queue: &Name| -> Result<_> { Ok(queue::drives(workspace, queue)?) };
        let workflows = queues.iter().map(drives).collect::<Result<_>>()?;
        let claim = Claim { bytes: CLAIMED_BYTES, ..Claim::new(node, workflows, limit) };
        let claims = self.store.claim(claim).await?;
        let mut taken = Assignments { next_due: claims.next_due, ..Assignments::default() };
        taken.more =
            limit > 0 && claims.runs.len() == limit || claims.next_due.is_some_and(|due| due <= claims.now);
        self.hand_all(workspace, claims.runs, &mut taken).await;
        Ok(taken)
    }

    /// The tasks of runs that a worker has claimed before and still holds, for a worker that has not got the answer.
    pub async fn take_again(&self, workspace: WorkspaceId, claimed: Vec<Claimed>) -> Vec<Assignment> {
        let mut taken = Assignments::default();
        self.hand_all(workspace, claimed, &mut taken).await;
        taken.tasks
    }

    async fn hand_all(&self, workspace: WorkspaceId, runs: Vec<Claimed>, taken: &mut Assignments) {
        let mut bytes = 0;
        for claimed in runs {
            let run = claimed.run.id();
            match self.hand(claimed, bytes).await {
                Ok(Some(task)) => {
                    bytes += task.input.text().len();
                    taken.tasks.push(task);
                }
                Ok(None) => taken.more = true,
                // A broken task must not keep the others from the worker that has claimed them.
                Err(error @ Error::Refused { .. }) => self.park(workspace, run, &error).await,
                Err(error) => {
                    tracing::warn!(%error, %run, "a run of a queue is held until its worker's lease ends");
                }
            }
        }
    }

    /// A claimed run as a task; none if it was settled, or given back because the answer is full.
    async fn hand(&self, claimed: Claimed, bytes: usize) -> Result<Option<Assignment>> {
        match self.hand_at(claimed.clone(), bytes, self.clock.now()).await {
            // Its time is up by this machine's clock, but not by the store's.
            Err(Error::TooEarly { now, .. }) => self.hand_at(claimed, bytes, now).await,
            handed => handed,
        }
    }

    async fn hand_at(&self, claimed: Claimed, bytes: usize, now: Time) -> Result<Option<Assignment>> {
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
                // Another node has the run.
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
        let control = Control { workspace, run, action: ControlAction::Pause, by, id: None, expected: None };
        if let Err(error) = self.store.control(control).await {
            tracing::error!(%error, %run, "nor can it be paused; it is due again when its worker's lease ends");
        }
    }

    /// Reports the result of a task.
    pub async fn complete(&self, task: AssignmentRef, value: Payload) -> Result<()> {
        self.report(task, Report::Completed(value)).await
    }

    /// Reports that a task has failed. The retry policy of its step decides whether it is tried again.
    pub async fn fail(&self, task: AssignmentRef, error: Failure) -> Result<()> {
        self.report(task, Report::Failed { error, retry_after: None }).await
    }

    /// Reports on a task. A repeated report gets the same answer; one from a worker that has lost the task, or one
    /// after the task's time limit, is refused and counted.
    pub async fn report(&self, task: AssignmentRef, report: Report) -> Result<()> {
        let task = self.handed_out(task).await?;
        self.report_on(&task, &report).await.map(drop)
    }

    /// A task as the worker was given it. An error if it was never handed out with this fence.
    pub async fn handed_out(&self, task: AssignmentRef) -> Result<HandedOut> {
        let AssignmentRef { workspace, run, fence } = task;
        let found = self.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
        let (header, _) = found.ok_or(Error::RunNotFound(run))?;
        if queue::queue(&header.new.workflow).is_none() {
            return Err(Error::RunNotFound(run));
        }
        let lost = || Error::Concurrency { run, expected: fence };
        let mut lines = self.store.ledger(workspace, run, 1).await?;
        // The ledger as the worker has seen it: a late report is made at that version, and the store refuses and
        // counts it.
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

    /// Reports on a task that was handed out. Returns when it is tried again, if this report leads to that. A report
    /// after the task's time limit is refused.
    pub async fn report_on(&self, task: &HandedOut, report: &Report) -> Result<Option<Time>> {
        match self.report_at(task, report, self.clock.now()).await {
            // Its time is up by this machine's clock, but not by the store's.
            Err(Error::TooEarly { now, .. }) => self.report_at(task, report, now).await,
            reported => reported,
        }
    }

    async fn report_at(&self, handed_out: &HandedOut, report: &Report, now: Time) -> Result<Option<Time>> {
        let AssignmentRef { workspace, run, fence } = handed_out.task;
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
        let moment = TimeAndChance { now, random: chance(&*self.clock) };
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
                // If the ledger cannot be read, the error stays as it was: lost, or unknown.
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
