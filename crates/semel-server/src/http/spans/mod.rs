//! `GET /workflow-runs/{id}/spans` and `GET /workflow-runs/{id}/steps/{path}`: the timeline of a run.
//!
//! A ledger is folded into spans once. The fold is kept, and is extended by the entries that were added since.

mod fold;

use std::sync::{Arc, Mutex, PoisonError};

use axum::Extension;
use axum::extract::State;
use semel::clock::Time;
use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::{Entry, Resolution};
use semel::rules::key::EffectKey;
use semel::rules::path::{Path, Visit};
use semel::rules::run::Run;
use semel::store::{LedgerPart, Part};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::fold::{Attempt, Claim, Span, SpanFold};
use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of};
use super::describe::{Always, OfRun, RunParam};
use super::runs::run_id;
use super::wait::found;
use crate::access::Caller;
use crate::api::{
    ClaimSpan, IdleView, Permission, SpanAttempt, SpanKind, SpanList, SpanStatus, SpanView, StepDetail,
    Value, time, value,
};
use crate::app::App;
use crate::bounded::{BoundedCache, Most};

/// Spans on a page if no limit is given.
const PAGE: usize = 200;
/// Maximum number of spans on a page.
const MAX_PAGE: usize = 10_000;
/// Entries that are read at a time.
const PART: usize = 10_000;
/// Maximum bytes that are read at a time, not counting the last commit.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Memory for folds of all workspaces.
const FOLD_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of folds, more than there are open pages.
const FOLDS: usize = 2_000;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(spans))
        .routes(routes!(step))
        .layer(Extension(Arc::<SpanFolds>::default()))
}

/// Query of `GET /workflow-runs/{id}/spans`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SpanPage {
    /// Place of the first span, from 0; 0 if absent.
    from: Option<usize>,
    /// Maximum number of spans on the page; 200 if absent.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<usize>,
    /// Only spans in this state.
    #[param(inline, value_type = Option<SpanStatus>)]
    status: Option<SpanStatus>,
}

/// Read a timeline
///
/// What the run did and waited for: steps with their attempts, timers, hooks and children, with times and without values, and the
/// nodes that drove it. `totals` are those of the whole run.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/spans",
    operation_id = "readSpans",
    tag = "runs",
    params(RunParam, SpanPage),
    responses((status = 200, description = "A page of spans", body = SpanList), Always, OfRun),
)]
async fn spans(
    State(app): State<Arc<App>>,
    Extension(folds): Extension<Arc<SpanFolds>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<SpanPage>,
) -> Result<Answer<SpanList>, Problem> {
    caller.may(Permission::Read)?;
    let (id, limit) = (run_id(&id)?, limit_of(asked.limit, PAGE, MAX_PAGE)?);
    let (run, _) = found(&app, caller.workspace, id).await?;
    let slot = folds.slot(caller.workspace, id);
    let mut fold = slot.lock().await;
    catch_up(&app, &run, &mut fold).await?;
    folds.weigh(id, fold.weight());
    let from = asked.from.unwrap_or(0);
    let wanted = |(_, span): &(usize, &Span)| asked.status.is_none_or(|status| span.status == status);
    let mut rest = fold.spans.iter().enumerate().skip(from).filter(wanted);
    let spans: Vec<_> = rest.by_ref().take(limit).map(|(place, span)| view(&run, place, span)).collect();
    let next = rest.next().map(|(place, _)| place);
    let claims = if from == 0 { fold.claims.iter().map(claim_view).collect() } else { Vec::new() };
    let rest = |(from, to): &(Time, Time)| IdleView { from: time(*from), to: time(*to) };
    let idle = if from == 0 { fold.idle.iter().map(rest).collect() } else { Vec::new() };
    let (run, version) = (id.to_string(), fold.version);
    Ok(Answer::ok(SpanList { run, version, totals: fold.totals(), spans, claims, idle, next }))
}

/// Query of `GET /workflow-runs/{id}/steps/{path}`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichVisit {
    /// Visit of the path that is meant; 1, the first visit, if absent.
    #[param(minimum = 1)]
    tick: Option<u32>,
}

/// Get a step
///
/// With its attempts, its value and the numbers of its entries. Timers, hooks and children are found by their paths too; they
/// have no value.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/steps/{path}",
    operation_id = "getStep",
    tag = "runs",
    params(
        RunParam,
        ("path" = String, Path, description = "The path of the step as one part of the address, percent-encoded", example = "charge"),
        WhichVisit,
    ),
    responses((status = 200, description = "The step", body = StepDetail), Always, OfRun),
)]
async fn step(
    State(app): State<Arc<App>>,
    Extension(folds): Extension<Arc<SpanFolds>>,
    caller: Caller,
    PathOf((id, path)): PathOf<(String, String)>,
    QueryOf(asked): QueryOf<WhichVisit>,
) -> Result<Answer<StepDetail>, Problem> {
    caller.may(Permission::Read)?;
    let id = run_id(&id)?;
    let visit =
        Visit { path: Path::parse(&path).map_err(semel::Error::from)?, tick: asked.tick.unwrap_or(1) };
    let (run, _) = found(&app, caller.workspace, id).await?;
    let slot = folds.slot(caller.workspace, id);
    let mut fold = slot.lock().await;
    catch_up(&app, &run, &mut fold).await?;
    folds.weigh(id, fold.weight());
    let missing = || {
        Problem::not_found(format!("this run has no step {visit}; GET /workflow-runs/{id}/spans lists all"))
    };
    let (place, span) = fold.of_visit(&visit).ok_or_else(missing)?;
    let (entries, span) = (span.entries.clone(), view(&run, place, span));
    drop(fold);
    let has_value = span.kind == SpanKind::Step && span.status == SpanStatus::Completed;
    let value = if has_value { value_in(&app, &run, span.last_entry).await? } else { None };
    let note = match span.attempts.last() {
        Some(attempt) => value_in(&app, &run, attempt.entry).await?,
        None => None,
    };
    Ok(Answer::ok(StepDetail { span, value, note, entries }))
}

/// The value in the entry that ended a step, or the note in the one that began it.
async fn value_in(app: &App, run: &Run, entry: u64) -> Result<Option<Value>, Problem> {
    let part = Part { workspace: run.new.workspace, run: run.id(), from: entry, limit: 1, bytes: PART_BYTES };
    let entries = app.store.ledger_part(part).await?.entries;
    Ok(entries.first().and_then(|line| match &line.entry {
        Entry::StepStarted { note: Some(result), .. }
        | Entry::StepCompleted { value: result, .. }
        | Entry::StepResolved { resolution: Resolution::Happened(result), .. } => Some(value(result)),
        _ => None,
    }))
}

/// Folds of runs whose timelines were read lately.
struct SpanFolds(Mutex<BoundedCache<RunId, WorkspaceId, Arc<tokio::sync::Mutex<SpanFold>>>>);

impl Default for SpanFolds {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: FOLDS, weight: FOLD_BYTES })))
    }
}

impl SpanFolds {
    /// The slot of a run's fold; its lock lets one reader extend it.
    fn slot(&self, workspace: WorkspaceId, run: RunId) -> Arc<tokio::sync::Mutex<SpanFold>> {
        let mut folds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folds.touch(run, workspace, Arc::default).clone()
    }

    fn weigh(&self, run: RunId, weight: usize) {
        let mut folds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folds.weigh(&run, weight);
        folds.trim();
    }
}

/// Extends a fold to the version of the run's header.
async fn catch_up(app: &App, run: &Run, fold: &mut SpanFold) -> Result<(), Problem> {
    while fold.version < run.state.version {
        let _turn = app.bounds.ledger_reads.acquire().await.expect("it is never closed");
        let (workspace, from) = (run.new.workspace, fold.version + 1);
        let part = Part { workspace, run: run.id(), from, limit: PART, bytes: PART_BYTES };
        let LedgerPart { entries, .. } = app.store.ledger_part(part).await?;
        // The history is past its retention.
        if entries.is_empty() {
            return Ok(());
        }
        // Entries beyond the header belong to a later version, and are read with it.
        for line in entries.iter().filter(|line| line.number <= run.state.version) {
            fold.add(line);
        }
    }
    Ok(())
}

fn view(run: &Run, place: usize, span: &Span) -> SpanView {
    let is_step = span.kind == SpanKind::Step;
    let (workspace, lineage) = (run.new.workspace, run.new.lineage);
    SpanView {
        place,
        kind: span.kind,
        path: span.visit.path.to_string(),
        tick: span.visit.tick,
        status: span.status,
        class: span.class,
        effect_key: is_step.then(|| EffectKey::of(workspace, lineage, &span.visit, "").to_string()),
        token: span.token.clone(),
        other: span.other.map(|run| run.to_string()),
        until: span.until.map(time),
        started_at: time(span.started),
        ended_at: span.ended.map(time),
        attempts: span.attempts.iter().map(attempt_view).collect(),
        reason: span.reason.clone(),
        first_entry: span.first_entry,
        last_entry: span.entries.last().copied().unwrap_or(span.first_entry),
    }
}

fn attempt_view(attempt: &Attempt) -> SpanAttempt {
    SpanAttempt {
        number: attempt.number,
        started_at: time(attempt.started),
        ended_at: attempt.ended.map(time),
        node: attempt.driver.map(|(node, _)| node.to_string()),
        fence: attempt.driver.map(|(_, fence)| fence),
        entry: attempt.entry,
        lost: attempt.lost,
        error: attempt.error.clone(),
    }
}

fn claim_view(claim: &Claim) -> ClaimSpan {
    ClaimSpan {
        node: claim.node.to_string(),
        fence: claim.fence,
        started_at: time(claim.started),
        ended_at: claim.ended.map(time),
        lost: claim.lost,
    }
}
