//! Commit: entries of many runs in one call, each checked by the fold of its run, with one answer each.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use futures_util::future::join_all;
use semel::clock::Time;
use semel::error::{Error, Result};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::remote::wire::{self, CommitAnswers, CommitCall, CommitItem, PlacedDraft};
use semel::rules::commit::{Commit, CommitFate, Saved};
use semel::rules::entry::Entry;
use semel::rules::ledger::Ledger;
use semel::rules::status::Status;
use semel::sabotage::{self, Bug};
use semel::store::{Find, FindBy, Numbered, Origin};
use serde_json::value::RawValue;

use super::answer::{Refusal, Text, Told};
use super::extent::ParentLook;
use super::node::WriteBy;
use super::{Shared, Workers, extent};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;
use crate::http::describe::{SpokenProtocol, WorkerProblems};

/// Append entries to many runs: each at the version that its driver has seen, each with its own answer.
#[utoipa::path(
    post, path = "/workers/commit",
    operation_id = "workerCommit", tag = "workers",
    request_body(content = wire::CommitCallSchema, content_type = "application/json", example = json!({"commits": [{"run": "run_01j0000000e00800000000007z", "node": "node_01j0000000e00800000000007z", "expected": 2, "entries": [{"stepStarted": {"step": "pay", "attempt": 1}}, {"stepCompleted": {"step": "pay", "value": 7}}]}]})),
    params(SpokenProtocol),
    responses((status = 200, body = CommitAnswers, description = "One result per commit"), WorkerProblems),
)]
pub(super) async fn commit(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    text: Text,
) -> Result<Told<CommitAnswers>, Refusal> {
    caller.may(Permission::Worker)?;
    let call: CommitCall<&RawValue> = text.parse()?;
    if call.commits.len() > wire::MOST {
        return Err(Problem::validation(format!("at most {} commits in one call", wire::MOST)).into());
    }
    let asked: Vec<CommitRequest> =
        call.commits.into_iter().map(|item| CommitRequest::of(&caller, item)).collect();
    // In a task of its own: the call completes even if the client disconnects.
    let origin = Origin::current().unwrap_or_default();
    let done = tokio::spawn(origin.around(async move {
        let (app, workers) = (&*app, &*workers);
        join_all(asked.into_iter().map(|asked| asked.save(app, workers, caller.workspace))).await
    }));
    let answers = done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?;
    Ok(Told(CommitAnswers::of(answers)))
}

/// One commit of a worker.
struct CommitRequest {
    run: RunId,
    by: WriteBy,
    expected: u64,
    seen: u64,
    entries: Result<Vec<Entry>>,
    drafts: Vec<PlacedDraft>,
}

/// The fold after a commit, and the driver that has put the run to rest by it.
type Folded = Option<(Ledger, Option<NodeId>)>;

impl CommitRequest {
    fn of(caller: &Caller, item: CommitItem<&RawValue>) -> Self {
        let CommitItem { run, node, expected, seen, entries, drafts } = item;
        let (by, entries) = (WriteBy::of(caller, node), wire::entries(entries).map_err(Error::from));
        Self { run, by, expected, seen, entries, drafts }
    }

    async fn save(self, app: &App, workers: &Workers, workspace: WorkspaceId) -> Result<Saved> {
        let (run, expected) = (self.run, self.expected);
        let place = workers.folds.place(run, workspace);
        let mut fold = place.lock().await;
        if fold.as_ref().is_some_and(|ledger| ledger.run().new.workspace != workspace) {
            return Err(Error::Concurrency { run, expected });
        }
        // No entry follows the expected version, so this is no repetition: a worker that has not claimed the run is
        // refused, and the fold stays.
        let present = fold.as_ref().map(Ledger::run).filter(|run| run.state.version == expected);
        if let Some(node) = present.and_then(|run| run.state.node)
            && !self.by.speaks_for(app, &workers.roster, workspace, node).await?
        {
            return Err(Error::Concurrency { run, expected });
        }
        // Before the fold is taken out: the worker tries again until it is admitted.
        let parent = present.map_or(ParentLook::Unread, |run| ParentLook::Known(run.new.parent));
        extent::admit_children(app, (workspace, run), parent, &self.drafts).await?;
        // Taken out while it may be ahead of the store: an early return leaves no fold behind.
        let saved = match fold.take_if(|ledger| ledger.run().state.version == expected) {
            Some(ledger) => self.save_after(app, workers, ledger, Vec::new()).await,
            None => match read(app, workspace, run, expected).await {
                Ok((ledger, after)) => self.save_after(app, workers, ledger, after).await,
                Err(error) => Err(error),
            },
        };
        let (saved, folded) = match saved {
            Ok((saved, folded)) => {
                (Ok(saved), folded.filter(|(ledger, _)| !ledger.run().status().is_terminal()))
            }
            Err(error) => (Err(error), None),
        };
        if let Some((ledger, rests)) = folded {
            let due = ledger.run().state.due.filter(|_| ledger.run().status() == Status::Waiting);
            if let Some(due) = due {
                workers.waiting.rests_until(due);
            }
            workers.folds.changed(&ledger, rests);
            *fold = Some(ledger);
        }
        if fold.is_none() {
            workers.folds.drop_run(run);
        }
        let mut saved = saved?;
        if saved.arrivals.is_none() {
            // Rare: the commit is a repetition, and the store was not asked to write.
            let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
            saved.arrivals = found.map(|(run, _)| run.arrivals);
        }
        workers.known.learn_children(&saved.settled, workspace);
        Ok(saved)
    }

    /// Commits after the entries that the worker has seen. If there are more, either this commit is among them,
    /// because its answer was lost; or the worker has lost the run, and the store refuses and counts it.
    async fn save_after(
        self,
        app: &App,
        workers: &Workers,
        mut ledger: Ledger,
        after: Vec<Numbered>,
    ) -> Result<(Saved, Folded)> {
        let (run, expected, driver) = (self.run, self.expected, ledger.run().state.node);
        let (workspace, lost) = (ledger.run().new.workspace, Error::Concurrency { run, expected });
        // A run without a claim accepts no commit.
        let Some(node) = driver.filter(|_| ledger.run().state.version == expected) else { return Err(lost) };
        let holds = self.by.speaks_for(app, &workers.roster, workspace, node).await?;
        extent::check_size(&ledger, app.ledgers)?;
        let commit = self.record(&mut ledger, app.clock.now())?;
        // A repetition changes nothing, whichever worker makes it.
        if let Some(saved) = repeated(&commit, after) {
            return Ok((saved, None));
        }
        if !holds {
            return Err(lost);
        }
        match app.store.commit(commit.clone()).await {
            Ok(saved) => {
                ledger.settle(&saved.settled).map_err(|source| Error::Refused { run, source })?;
                let rests = driver.filter(|_| ledger.run().status() == Status::Waiting);
                Ok((saved, Some((ledger, rests))))
            }
            Err(Error::Concurrency { .. }) if sabotage::commits(Bug::BelieveZombies) => {
                let version = expected + commit.count();
                Ok((Saved { version, ..Saved::default() }, None))
            }
            Err(lost @ Error::Concurrency { .. }) => {
                // The first try may have reached another server a moment ago.
                let after = app.store.ledger(workspace, run, expected + 1).await?;
                repeated(&commit, after).map(|saved| (saved, None)).ok_or(lost)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the entries with the ledger and makes a commit of them.
    fn record(self, ledger: &mut Ledger, now: Time) -> Result<Commit> {
        let (run, entries) = (self.run, self.entries?);
        check_beginnings(&entries, now)?;
        let refused = |source| Error::Refused { run, source };
        let places = self.drafts.iter().map(|placed| placed.after);
        if !places.clone().is_sorted() || places.max().is_some_and(|last| last > entries.len() as u64) {
            return Err(Error::Validation("drafts stand in order, among the entries".to_owned()));
        }
        let mut drafts = self.drafts.into_iter().peekable();
        let mut entries = entries.into_iter();
        for before in 0.. {
            while let Some(placed) = drafts.next_if(|placed| placed.after == before) {
                placed.draft.check()?;
                placed.draft.record(ledger).map_err(refused)?;
            }
            let Some(entry) = entries.next() else { break };
            ledger.record(entry).map_err(refused)?;
        }
        ledger.saw_arrivals(self.seen);
        let commit = ledger
            .commit()
            .ok_or_else(|| Error::Validation("a commit appends at least one entry".to_owned()))?;
        Ok(commit.ask_news())
    }
}

/// How far the beginning of a step may seem to be ahead of this server's clock: more than clocks differ that are set at
/// all. Readers take no beginning to be later than its commit.
const AHEAD: Duration = Duration::from_mins(1);

/// Refuses steps that begin in the future.
fn check_beginnings(entries: &[Entry], now: Time) -> Result<()> {
    let latest = now.after(AHEAD);
    let late = entries.iter().find_map(|entry| match entry {
        Entry::StepStarted { step, at: Some(at), .. } if *at > latest => Some((step, *at)),
        _ => None,
    });
    match late {
        None => Ok(()),
        Some((step, at)) => Err(Error::Validation(format!(
            "`at` of `{step}` says that it began at {at}, and it is {now} now; take the time from the answers of the server, \
             or leave `at` out"
        ))),
    }
}

/// The fold of a run's first entries, and the entries after them.
async fn read(app: &App, workspace: WorkspaceId, run: RunId, first: u64) -> Result<(Ledger, Vec<Numbered>)> {
    let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
    // A run that does not exist counts as lost.
    let (mut header, _) = found.ok_or(Error::Concurrency { run, expected: first })?;
    // The number of arrivals is left to the driver: a waiting driver must not miss a message that only the server has
    // seen.
    header.arrivals = 0;
    let mut lines = app.store.ledger(workspace, run, 1).await?;
    let after = lines.split_off(lines.len().min(usize::try_from(first).unwrap_or(usize::MAX)));
    let entries = lines.into_iter().map(|line| line.entry);
    let ledger = Ledger::read(header, entries).map_err(|source| Error::Refused { run, source })?;
    Ok((ledger.slim(), after))
}

/// The earlier result of this commit, if the ledger already contains it at its position.
fn repeated(commit: &Commit, after: Vec<Numbered>) -> Option<Saved> {
    match commit.fate(after.into_iter().map(|line| line.entry)) {
        CommitFate::Saved(saved) => Some(saved),
        CommitFate::Open | CommitFate::Lost => None,
    }
}
