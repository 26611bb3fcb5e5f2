//! `GET /workflow-runs/{id}/cost`: what the model calls of a run and of its children have used, added up from their ledgers.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use axum::extract::State;
use semel::Error;
use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::store::{LedgerPart, Part};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::PathOf;
use super::describe::{Always, OfRun, RunParam};
use super::runs::run_id;
use crate::access::Caller;
use crate::api::{ModelCost, ModelSum, Permission, RunCost};
use crate::app::App;
use crate::tasks::ModelUse;

/// Maximum number of runs that are added up: an answer stays quick.
const RUNS: u64 = 100;
/// Maximum number of parts of ledgers that are read for one answer.
const PARTS: u32 = 64;
/// Entries of a part.
const ENTRIES: usize = 1_000;
/// Maximum bytes of a part, not counting its last commit.
const PART_BYTES: usize = 2 * 1024 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(cost))
}

/// Add up what a run has cost
///
/// The recorded model calls of a run and of its children: tokens, and their cost by the prices of the server's configuration.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/cost",
    operation_id = "readCost",
    tag = "runs",
    params(RunParam),
    responses((status = 200, description = "The sums", body = RunCost), Always, OfRun),
)]
async fn cost(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
) -> Result<Answer<RunCost>, Problem> {
    caller.may(Permission::Read)?;
    let run = run_id(&id)?;
    let mut sums = Sums { left: PARTS, complete: true, ..Sums::default() };
    sums.add(&app, caller.workspace, run).await?;
    while let Some(child) = sums.waiting.pop_front() {
        if sums.runs == RUNS {
            sums.complete = false;
            break;
        }
        match sums.add(&app, caller.workspace, child).await {
            Ok(()) => {}
            Err(Error::RunNotFound(_)) => sums.complete = false,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Answer::ok(sums.answer(run)))
}

#[derive(Default)]
struct Sums {
    models: BTreeMap<(String, String), ModelSum>,
    total: ModelSum,
    /// Number of runs so far.
    runs: u64,
    known: HashSet<RunId>,
    waiting: VecDeque<RunId>,
    /// Parts of ledgers that may still be read.
    left: u32,
    complete: bool,
}

impl Sums {
    /// Adds the calls of a run; its children wait for their turn.
    async fn add(&mut self, app: &App, workspace: WorkspaceId, run: RunId) -> Result<(), Error> {
        self.runs += 1;
        self.known.insert(run);
        let mut from = Some(1);
        while let Some(first) = from {
            let Some(left) = self.left.checked_sub(1) else {
                self.complete = false;
                return Ok(());
            };
            self.left = left;
            let part = Part { workspace, run, from: first, limit: ENTRIES, bytes: PART_BYTES };
            let LedgerPart { entries, next } = app.store.ledger_part(part).await?;
            // The history is no longer kept.
            self.complete &= first > 1 || !entries.is_empty();
            for line in &entries {
                self.entry(&line.entry);
            }
            from = next;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::StepCompleted { value, .. } => {
                let Some(ModelUse { connection, model, usage, cost }) = ModelUse::of(value) else { return };
                self.total.add(usage, cost);
                self.models.entry((connection, model)).or_default().add(usage, cost);
            }
            Entry::ChildStarted { run, .. } if self.known.insert(*run) => self.waiting.push_back(*run),
            _ => {}
        }
    }

    fn answer(self, run: RunId) -> RunCost {
        let models = self.models.into_iter();
        RunCost {
            run: run.to_string(),
            runs: self.runs,
            complete: self.complete,
            total: self.total,
            models: models.map(|((connection, model), sum)| ModelCost { connection, model, sum }).collect(),
        }
    }
}
