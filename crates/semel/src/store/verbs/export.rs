//! What a store holds, as lines of an archive.

use crate::error::Result;
use crate::id::WorkspaceId;
use crate::rules::archive::{
    ArchiveLine, CommitLine, MessageLine, OnceLine, RecordLine, RunLine, WatcherLine,
};
use crate::rules::json::Payload;
use crate::rules::run::Run;
use crate::store::archive::{OnceAt, RecordAt};
use crate::store::tx::{HeldOnce, StoreTx, Verb};

/// How many rows one page reads: some megabytes of ordinary runs.
const PAGE: usize = 200;

/// One page: its lines, and the page after it.
#[derive(Clone, Debug)]
pub(crate) struct ExportPage {
    workspace: Option<WorkspaceId>,
    after: After,
}

/// Where a page begins.
#[derive(Clone, Debug)]
enum After {
    Run(i64),
    /// The watchers of runs come when all runs have come.
    WatchersOf(i64),
    Once(Option<OnceAt>),
    Record(Option<RecordAt>),
}

impl ExportPage {
    pub(crate) fn first(workspace: Option<WorkspaceId>) -> Self {
        Self { workspace, after: After::Run(i64::MIN) }
    }

    fn then(&self, after: After) -> Self {
        Self { workspace: self.workspace, after }
    }

    fn wants(&self, workspace: WorkspaceId) -> bool {
        self.workspace.is_none_or(|wanted| wanted == workspace)
    }

    async fn runs<T: StoreTx>(&self, tx: &mut T, after: i64) -> Result<(Vec<ArchiveLine>, Option<Self>)> {
        let runs = tx.runs_after(after, PAGE).await?;
        let mut lines = Vec::new();
        for run in runs.iter().filter(|run| self.wants(run.new.workspace)) {
            lines.push(ArchiveLine::Run(Box::new(line_of(tx, run).await?)));
        }
        let next = runs.last().map_or(After::WatchersOf(i64::MIN), |run| After::Run(run.num));
        Ok((lines, Some(self.then(next))))
    }

    async fn watchers<T: StoreTx>(&self, tx: &mut T, after: i64) -> Result<(Vec<ArchiveLine>, Option<Self>)> {
        let runs = tx.runs_after(after, PAGE).await?;
        let mut lines = Vec::new();
        let open = |run: &&Run| self.wants(run.new.workspace) && !run.status().is_terminal();
        for run in runs.iter().filter(open) {
            for watcher in tx.watchers_of(run.num).await? {
                // One that is forgotten needs no answer.
                if let Some(waiting) = tx.run_at(watcher.num).await? {
                    let line = WatcherLine { run: waiting.id(), visit: watcher.visit, waits_for: run.id() };
                    lines.push(ArchiveLine::Watcher(line));
                }
            }
        }
        let next = runs.last().map_or(After::Once(None), |run| After::WatchersOf(run.num));
        Ok((lines, Some(self.then(next))))
    }

    async fn once<T: StoreTx>(
        &self,
        tx: &mut T,
        after: Option<&OnceAt>,
    ) -> Result<(Vec<ArchiveLine>, Option<Self>)> {
        let rows = tx.once_after(after, PAGE).await?;
        let next = rows.last().map(HeldOnce::at);
        let mut lines = Vec::new();
        for row in rows.into_iter().filter(|row| self.wants(row.workspace)) {
            lines.push(ArchiveLine::Once(once_line(tx, row).await?));
        }
        let next = match next {
            Some(at) => Some(self.then(After::Once(Some(at)))),
            // Records belong to no workspace.
            None if self.workspace.is_none() => Some(self.then(After::Record(None))),
            None => None,
        };
        Ok((lines, next))
    }

    async fn records<T: StoreTx>(
        &self,
        tx: &mut T,
        after: Option<&RecordAt>,
    ) -> Result<(Vec<ArchiveLine>, Option<Self>)> {
        let records = tx.records_after(after, PAGE).await?;
        let next = records.last().map(|record| (record.kind.clone(), record.id.clone()));
        let lines = records.iter().map(|record| ArchiveLine::Record(RecordLine::of(record))).collect();
        Ok((lines, next.map(|at| self.then(After::Record(Some(at))))))
    }
}

impl Verb for ExportPage {
    type Answer = (Vec<ArchiveLine>, Option<Self>);
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Self::Answer> {
        match &self.after {
            After::Run(after) => self.runs(tx, *after).await,
            After::WatchersOf(after) => self.watchers(tx, *after).await,
            After::Once(after) => self.once(tx, after.as_ref()).await,
            After::Record(after) => self.records(tx, after.as_ref()).await,
        }
    }
}

/// A run with all that belongs to it.
pub(super) async fn line_of<T: StoreTx>(tx: &mut T, run: &Run) -> Result<RunLine> {
    let mut line = RunLine::bare(run);
    line.receipts = tx.receipts(run.num).await?;
    line.tokens = tx.tokens_of(run.num).await?;
    // Of a history that is forgotten some rows may be left, until the sweep is through with it.
    if !run.purged {
        let commits = tx.ledgers(&[run.num], 0).await?.into_iter();
        line.commits =
            commits.map(|row| CommitLine { seq: row.seq, at: row.at, entries: row.text }).collect();
        let inbox = tx.inboxes(&[run.num], 1, usize::MAX).await?.into_iter();
        line.inbox =
            inbox.map(|row| MessageLine { arrival: row.arrival, at: row.at, message: row.text }).collect();
        line.calls = tx.calls_of(run.num).await?;
    }
    if run.state.node.is_some() {
        line.leave_driver();
    }
    Ok(line)
}

/// A `run_once` value with the runs that wait for it.
pub(super) async fn once_line<T: StoreTx>(tx: &mut T, held: HeldOnce) -> Result<OnceLine> {
    // No run waits for a settled once.
    let waiters = if held.row.value.is_some() { Vec::new() } else { tx.once_waiters(&held.at()).await? };
    let HeldOnce { workspace, scope, label, row } = held;
    Ok(OnceLine {
        workspace,
        scope,
        label,
        owner: row.owner,
        fence: row.fence,
        value: row.value.as_ref().map(|value: &Payload| value.text().to_owned()),
        expires: row.expires,
        waiters,
    })
}

/// Finds damage below the rows.
pub(crate) struct IntegrityCheck;

impl Verb for IntegrityCheck {
    type Answer = Vec<String>;
    const READS: bool = true;
    const SCANS: bool = true;

    async fn run<T: StoreTx>(&self, tx: &mut T) -> Result<Vec<String>> {
        tx.sound().await
    }
}
