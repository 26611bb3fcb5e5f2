//! `GET /workflow-runs` and `GET /workflow-runs/{id}`.

use std::sync::Arc;

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use semel::clock::Time;
use semel::id::RunId;
use semel::rules::key::{Key, Scope};
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, Page, Query};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of, wait_of};
use super::describe::{Always, OfRun};
use super::keys::scope_of;
use super::start::name;
use super::steps::{detail, last_pause};
use super::view::{pause_words, run_view};
use super::wait::{found, until};
use crate::access::Caller;
use crate::api::{Permission, RunDetail, RunList};
use crate::app::App;

/// Runs on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of runs on a page: their headers stay far below 2 MiB.
const MAX_PAGE: usize = 500;
/// Maximum number of pause reasons that are looked up for a page.
const REASONS: usize = 100;
/// Number of concurrent reads of pause reasons.
const READS_AT_ONCE: usize = 16;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// Query of `GET /workflow-runs`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListRuns {
    /// Only runs in this state.
    #[param(inline, value_type = Option<semel::rules::status::Status>)]
    status: Option<Status>,
    /// Only runs of this workflow.
    #[param(min_length = 1, max_length = 200)]
    workflow: Option<String>,
    /// Only the run that holds this key.
    #[param(min_length = 1, max_length = 255)]
    key: Option<String>,
    /// Scope of the key, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    scope: Option<String>,
    /// Only runs created at this time or later, RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of runs on the page; 50 if absent.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// List runs
///
/// Newest first, without results. A page for which too many runs would have to be read is cut short: it has
/// `partial`, may be empty, and its `next` continues.
#[utoipa::path(
    get,
    path = "/workflow-runs",
    operation_id = "listRuns",
    tag = "runs",
    params(ListRuns),
    responses((status = 200, description = "A page of runs", body = RunList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListRuns>,
) -> Result<Answer<RunList>, Problem> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, PAGE, MAX_PAGE)?;
    let query = Query {
        status: asked.status,
        workflow: asked.workflow.as_deref().map(name).transpose()?,
        since: asked.since.as_deref().map(|text| time_of("since", text)).transpose()?,
        before: asked.cursor.as_deref().map(run_id).transpose()?,
        ..Query::all(caller.workspace, limit)
    };
    let scope = scope_of(asked.scope.as_deref())?;
    let Page { runs, next, partial } = match asked.key {
        Some(key) => under_key(&app, &query, scope, key).await?,
        None => page(&app, query).await?,
    };
    let reasons = pause_reasons(&app, &runs).await?;
    let mut runs: Vec<_> = runs.iter().map(|run| run_view(run, None)).collect();
    for run in &mut runs {
        app.services.mark(&app, caller.workspace, run).await;
    }
    for (place, reason) in reasons {
        runs[place].pause_reason = reason;
    }
    Ok(Answer::ok(RunList { runs, next: next.map(|run| run.to_string()), partial }))
}

/// Pause reasons by place in the page. Bounded, because each costs a read.
async fn pause_reasons(app: &App, runs: &[Run]) -> Result<Vec<(usize, Option<String>)>, Problem> {
    let paused = runs.iter().enumerate().filter(|(_, run)| run.status() == Status::Paused);
    let read = async |place: usize, run: &Run| -> Result<_, Problem> {
        let reason = last_pause(app, run).await?;
        Ok((place, reason.as_ref().map(pause_words)))
    };
    let reads: Vec<_> = paused.take(REASONS).map(|(place, run)| read(place, run)).collect();
    stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
}

/// A page of the store. The cursor is the id of a run: its number is shared by all workspaces and would disclose how
/// many runs there are.
pub(super) async fn page(app: &App, query: Query) -> Result<Page, Problem> {
    let before = query.before;
    match app.store.list(query).await {
        Err(semel::Error::RunNotFound(run)) if before == Some(run) => {
            Err(Problem::validation("this `cursor` has expired; start again without it"))
        }
        listed => Ok(listed?),
    }
}

/// The run that holds a key, if it matches the query.
async fn under_key(app: &App, query: &Query, scope: Scope, key: String) -> Result<Page, Problem> {
    let key = Key::new(key).map_err(semel::Error::from)?;
    let find = Find { workspace: query.workspace, by: FindBy::Key(scope, key) };
    let holder = app.store.find(find).await?.map(|(run, _)| run);
    Ok(Page { runs: holder.into_iter().filter(|run| query.wants(run)).collect(), ..Page::default() })
}

/// A time in a query.
pub(super) fn time_of(name: &str, text: &str) -> Result<Time, Problem> {
    let at: Result<Timestamp, _> = text.parse();
    at.map(|at| Time(at.as_millisecond())).map_err(|_| {
        Problem::validation(format!("`{name}` is a time like 2026-01-31T12:00:00Z, and not {text:?}"))
    })
}

/// Query of a long poll.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitForRun {
    /// Wait up to this many seconds, for the run's end or for a version beyond `version`.
    #[param(value_type = Option<u64>, maximum = 60)]
    wait: Option<String>,
    /// Last known version. With `wait`, the answer comes as soon as there is a later one.
    version: Option<u64>,
}

/// Get a run
///
/// With its input, result, steps, open hooks and absorbed duplicates.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}",
    operation_id = "getRun",
    tag = "runs",
    params(super::describe::RunParam, WaitForRun),
    responses((status = 200, description = "The run", body = RunDetail), Always, OfRun),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<WaitForRun>,
) -> Result<Answer<RunDetail>, Problem> {
    caller.may(Permission::Read)?;
    let id = run_id(&id)?;
    let (run, outcome) = match wait_of(asked.wait.as_deref())? {
        None => found(&app, caller.workspace, id).await?,
        Some(wait) => {
            let enough = |run: &Run| asked.version.is_some_and(|seen| run.state.version > seen);
            until(&app, caller.workspace, id, wait, enough).await?
        }
    };
    let mut detail = detail(&app, &run, outcome.as_ref()).await?;
    app.services.mark(&app, caller.workspace, &mut detail.run).await;
    Ok(Answer::ok(detail))
}

/// Parses the run id of a path.
pub(super) fn run_id(text: &str) -> Result<RunId, Problem> {
    text.parse().map_err(|refused| semel::Error::from(refused).into())
}
