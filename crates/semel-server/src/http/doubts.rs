//! `GET /doubts`: the steps in doubt of a workspace, with the evidence in their ledgers.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use semel::id::NodeId;
use semel::rules::attention::Attention;
use semel::rules::entry::{Class, Entry};
use semel::rules::json::Payload;
use semel::rules::key::EffectKey;
use semel::rules::path::Visit;
use semel::rules::run::Run;
use semel::store::{Numbered, Order, Page, Part, Query};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{QueryOf, limit_of};
use super::describe::Always;
use super::runs::{page as runs_page, run_id};
use crate::access::Caller;
use crate::api::{DoubtList, DoubtView, IntentView, Permission, time, value};
use crate::app::App;

/// Runs on a page if no limit is given.
const PAGE: usize = 20;
/// Maximum number of runs on a page: each costs a read of its ledger's end.
const MAX_PAGE: usize = 100;
/// Number of concurrent reads.
const READS_AT_ONCE: usize = 8;
/// Entries that are read from the end of a ledger: first a few, then more if no step in doubt is among them.
const TAILS: [u64; 2] = [64, 2_000];
/// Maximum bytes of these entries, not counting the last commit.
const TAIL_BYTES: usize = 1024 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Query of `GET /doubts`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListDoubts {
    /// The `next` of the previous page. Absent for the first page.
    pub(crate) cursor: Option<String>,
    /// Maximum number of runs whose steps are on the page; 20 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub(crate) limit: Option<usize>,
}

/// List steps in doubt
///
/// Of runs that are paused over them, the oldest run first, with what was written before the effect: resolve them with
/// `POST /workflow-runs/{id}/steps/{path}/resolve`.
#[utoipa::path(
    get,
    path = "/doubts",
    operation_id = "listDoubts",
    tag = "control",
    params(ListDoubts),
    responses((status = 200, description = "A page of steps in doubt", body = DoubtList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListDoubts>,
) -> Result<Answer<DoubtList>, Problem> {
    page(&app, &caller, asked).await.map(Answer::ok)
}

/// A page of steps in doubt, as its caller may see it.
pub(crate) async fn page(app: &App, caller: &Caller, asked: ListDoubts) -> Result<DoubtList, Problem> {
    caller.may(Permission::Read)?;
    let query = Query {
        attention: Some(Attention::InDoubt),
        order: Order::Oldest,
        before: asked.cursor.as_deref().map(run_id).transpose()?,
        ..Query::all(caller.workspace, limit_of(asked.limit, PAGE, MAX_PAGE)?)
    };
    let Page { runs, next, partial } = runs_page(app, query).await?;
    let reads: Vec<_> = runs.iter().map(|run| doubts_of(app, run)).collect();
    let doubts: Vec<Vec<DoubtView>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    Ok(DoubtList {
        doubts: doubts.into_iter().flatten().collect(),
        next: next.map(|run| run.to_string()),
        partial,
    })
}

/// The steps in doubt of a run, from the end of its ledger.
async fn doubts_of(app: &App, run: &Run) -> Result<Vec<DoubtView>, Problem> {
    let (version, mut doubts) = (run.state.version, Vec::new());
    for count in TAILS {
        let from = version.saturating_sub(count - 1).max(1);
        let (workspace, limit) = (run.new.workspace, count as usize);
        let part = Part { workspace, run: run.id(), from, limit, bytes: TAIL_BYTES };
        let lines = app.store.ledger_part(part).await?.entries;
        doubts = in_doubt(run, &lines);
        if from == 1 || doubts.iter().any(|doubt| doubt.intent.is_some()) {
            break;
        }
    }
    Ok(doubts)
}

/// The claim under which entries were written: its node and its number.
type Driver = Option<(NodeId, u64)>;

/// The latest beginning of a step.
struct Begun<'a> {
    class: Class,
    intent: IntentView,
    note: Option<&'a Payload>,
}

/// The steps that are in doubt after these entries.
fn in_doubt(run: &Run, lines: &[Numbered]) -> Vec<DoubtView> {
    let (mut driver, mut begun): (Driver, HashMap<&Visit, Begun<'_>>) = (None, HashMap::new());
    let mut doubts: Vec<(&Visit, DoubtView)> = Vec::new();
    for line in lines {
        match &line.entry {
            Entry::Claimed { node } => driver = Some((*node, line.number)),
            Entry::StepStarted { step, attempt, class, note, .. } => {
                let intent = intent(line, *attempt, driver);
                begun.insert(step, Begun { class: *class, intent, note: note.as_ref() });
            }
            Entry::StepInDoubt { step, reason } => {
                doubts.push((step, doubt(run, line, (step, reason), begun.get(step))));
            }
            Entry::StepResolved { step, .. } => doubts.retain(|(doubtful, _)| *doubtful != step),
            Entry::Restarted { .. } => doubts.clear(),
            _ => {}
        }
    }
    doubts.into_iter().map(|(_, doubt)| doubt).collect()
}

fn intent(line: &Numbered, attempt: u32, driver: Driver) -> IntentView {
    IntentView {
        entry: line.number,
        at: time(line.at),
        attempt,
        node: driver.map(|(node, _)| node.to_string()),
        fence: driver.map(|(_, fence)| fence),
    }
}

fn doubt(run: &Run, line: &Numbered, (step, reason): (&Visit, &str), begun: Option<&Begun<'_>>) -> DoubtView {
    let new = &run.new;
    DoubtView {
        run: new.id.to_string(),
        key: new.key.to_string(),
        workflow: new.workflow.to_string(),
        version: run.state.version,
        path: step.path.to_string(),
        tick: step.tick,
        class: begun.map(|begun| begun.class),
        reason: reason.to_owned(),
        since: time(line.at),
        effect_key: EffectKey::of(new.workspace, new.lineage, step, "").to_string(),
        intent: begun.map(|begun| begun.intent.clone()),
        note: begun.and_then(|begun| begun.note).map(value),
    }
}
