//! `GET /workflow-runs` and `GET /workflow-runs/{id}`.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::Uri;
use axum::http::request::Parts;
use jiff::Timestamp;
use semel::clock::Time;
use semel::id::{RunId, WorkspaceId};
use semel::rules::attention::Attention;
use semel::rules::key::{Key, Scope};
use semel::rules::run::Run;
use semel::rules::status::Status;
use semel::store::{Find, FindBy, KeyPrefix, Order, Page, Query};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of, wait_of};
use super::describe::{Always, OfRun};
use super::form;
use super::keys::scope_of;
use super::start::name;
use super::steps::{detail, last_pause};
use super::view::{add_glance, pause_words, run_view};
use super::wait::{found, until};
use crate::access::Caller;
use crate::api::{Permission, RunDetail, RunList, RunView};
use crate::app::App;

/// Runs on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of runs on a page: their headers stay far below 2 MiB.
const MAX_PAGE: usize = 500;
/// Maximum number of runs of a page that are looked at beyond their headers.
const GLANCES: usize = 100;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get))
}

/// Query of `GET /workflow-runs`, but for what may be given several times.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListRuns {
    /// Only runs of this version of their workflow.
    #[param(min_length = 1, max_length = 200)]
    pub(crate) workflow_version: Option<String>,
    /// Only the run that holds this key.
    #[param(min_length = 1, max_length = 255)]
    pub(crate) key: Option<String>,
    /// Only runs whose key begins like this, whether or not they still hold it.
    #[param(min_length = 1, max_length = 255)]
    pub(crate) key_prefix: Option<String>,
    /// Scope of `key` and `keyPrefix`, as runs show it: `*` (default), `w/order`, `v/order/1`, `child`.
    pub(crate) scope: Option<String>,
    /// Only runs created at this time or later, RFC 3339.
    #[param(format = DateTime)]
    pub(crate) since: Option<String>,
    /// Only runs created before this time, RFC 3339.
    #[param(format = DateTime)]
    pub(crate) until: Option<String>,
    /// Only runs that ended at this time or later, RFC 3339.
    #[param(format = DateTime)]
    pub(crate) ended_since: Option<String>,
    /// Only runs that this run has started.
    pub(crate) parent: Option<String>,
    /// Only runs that share the effect keys of this run: itself, and its forks without fresh keys.
    pub(crate) lineage: Option<String>,
    /// Only runs that this node drives.
    pub(crate) node: Option<String>,
    /// Only runs that are paused for a reason of this kind.
    #[param(inline, value_type = Option<semel::rules::attention::Attention>)]
    pub(crate) attention: Option<Attention>,
    /// Order by the time of creation: `newest` (default) or `oldest` first.
    #[param(inline, value_type = Option<semel::store::Order>)]
    pub(crate) order: Option<Order>,
    /// The `next` of the previous page. Absent for the first page.
    pub(crate) cursor: Option<String>,
    /// Maximum number of runs on the page; 50 if absent.
    #[param(minimum = 1, maximum = 500)]
    pub(crate) limit: Option<usize>,
}

/// What `GET /workflow-runs` takes several times.
#[derive(Debug, Default, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListedKinds {
    /// Only runs in this state; may be given several times.
    #[param(inline, value_type = Option<Vec<semel::rules::status::Status>>)]
    pub(crate) status: Vec<Status>,
    /// Only runs of this workflow; may be given up to ten times.
    #[param(inline, value_type = Option<Vec<String>>)]
    pub(crate) workflow: Vec<String>,
}

/// Most workflows that one list may name: each is a stretch of an index of its own.
const MAX_WORKFLOWS: usize = 10;

/// The whole query of a list of runs.
#[derive(Debug, Default)]
pub(crate) struct RunsQuery {
    pub(crate) kinds: ListedKinds,
    pub(crate) rest: ListRuns,
}

impl<S: Send + Sync> FromRequestParts<S> for RunsQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let (kinds, rest) = ListedKinds::split(parts.uri.query().unwrap_or_default())?;
        let uri: Uri =
            format!("/?{rest}").parse().map_err(|_| Problem::validation("the query is no query"))?;
        let (mut parts, ()) = axum::http::Request::builder()
            .uri(uri)
            .body(())
            .map_err(|_| Problem::validation("the query is no query"))?
            .into_parts();
        let QueryOf(rest) = QueryOf::<ListRuns>::from_request_parts(&mut parts, &()).await?;
        Ok(Self { kinds, rest })
    }
}

impl ListedKinds {
    /// Takes what may be given several times out of a query; gives the rest of the query.
    fn split(query: &str) -> Result<(Self, String), Problem> {
        let (mut kinds, mut rest) = (Self::default(), Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match form::fields(pair).into_iter().next() {
                Some((name, value)) if name == "status" => kinds.status.push(status_of(&value)?),
                Some((name, value)) if name == "workflow" => kinds.workflow.push(value),
                _ => rest.push(pair),
            }
        }
        if kinds.workflow.len() > MAX_WORKFLOWS {
            return Err(Problem::validation(format!(
                "`workflow` may be given at most {MAX_WORKFLOWS} times"
            )));
        }
        Ok((kinds, rest.join("&")))
    }
}

fn status_of(text: &str) -> Result<Status, Problem> {
    Status::ALL.into_iter().find(|status| status.to_string() == text).ok_or_else(|| {
        let known = Status::ALL.map(|status| status.to_string()).join(", ");
        Problem::validation(format!(
            "the query is not valid for this route: `status` is one of {known}, not {text:?}"
        ))
    })
}

/// List runs
///
/// Newest first unless `order` says otherwise, without results. A page for which too many runs would have to be read is
/// cut short: it has `partial`, may be empty, and its `next` continues.
#[utoipa::path(
    get,
    path = "/workflow-runs",
    operation_id = "listRuns",
    tag = "runs",
    params(ListedKinds, ListRuns),
    responses((status = 200, description = "A page of runs", body = RunList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    asked: RunsQuery,
) -> Result<Answer<RunList>, Problem> {
    list_page(&app, &caller, asked).await.map(Answer::ok)
}

/// A page of runs, as its caller may see it.
pub(crate) async fn list_page(app: &App, caller: &Caller, asked: RunsQuery) -> Result<RunList, Problem> {
    caller.may(Permission::Read)?;
    let key = asked.rest.key.clone();
    let scope = scope_of(asked.rest.scope.as_deref())?;
    let query = asked.query(caller.workspace, &scope)?;
    let Page { runs, next, partial } = match key {
        Some(key) => under_key(app, &query, scope, key).await?,
        None => page(app, query).await?,
    };
    Ok(RunList {
        runs: views(app, caller.workspace, &runs).await?,
        next: next.map(|run| run.to_string()),
        partial,
    })
}

impl RunsQuery {
    fn query(self, workspace: WorkspaceId, scope: &Scope) -> Result<Query, Problem> {
        let Self { kinds, rest } = self;
        let limit = limit_of(rest.limit, PAGE, MAX_PAGE)?;
        let at = |name, time: Option<String>| time.map(|time| time_of(name, &time)).transpose();
        let run = |text: Option<String>| text.as_deref().map(run_id).transpose();
        let prefix = |prefix| KeyPrefix { scope: scope.clone(), prefix };
        let node = rest.node.as_deref().map(str::parse).transpose();
        Ok(Query {
            status: kinds.status,
            workflow: kinds.workflow.iter().map(|text| name(text)).collect::<Result<_, _>>()?,
            workflow_version: rest.workflow_version.as_deref().map(name).transpose()?,
            key_prefix: rest.key_prefix.map(prefix),
            since: at("since", rest.since)?,
            until: at("until", rest.until)?,
            ended_since: at("endedSince", rest.ended_since)?,
            parent: run(rest.parent)?,
            lineage: run(rest.lineage)?,
            node: node
                .map_err(|refused: semel::id::InvalidId| Problem::validation(format!("`node`: {refused}")))?,
            attention: rest.attention,
            order: rest.order.unwrap_or_default(),
            before: run(rest.cursor)?,
            ..Query::all(workspace, limit)
        })
    }
}

/// Runs as a list shows them.
async fn views(app: &App, workspace: WorkspaceId, runs: &[Run]) -> Result<Vec<RunView>, Problem> {
    let mut views: Vec<_> = runs.iter().map(|run| run_view(run, None)).collect();
    let glances = app.store.glances(runs.iter().take(GLANCES).cloned().collect()).await?;
    for ((view, run), glance) in views.iter_mut().zip(runs).zip(&glances) {
        add_glance(view, glance);
        // The pause is in a commit that is too large for a glance.
        if run.status() == Status::Paused && glance.pause.is_none() {
            view.pause_reason = last_pause(app, run).await?.as_ref().map(pause_words);
        }
    }
    for view in &mut views {
        app.services.mark(app, workspace, view).await;
    }
    Ok(views)
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

/// Parses the time of a query; `name` is that of the parameter.
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
    /// `none`: the answer has no steps; `GET /workflow-runs/{id}/spans` has them in pages. All steps if absent.
    #[param(inline, value_type = Option<WhichSteps>)]
    steps: Option<WhichSteps>,
    /// Last known version. With `wait`, the answer comes as soon as there is a later one.
    version: Option<u64>,
}

/// Which steps an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
enum WhichSteps {
    /// No step at all.
    None,
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
    if asked.steps == Some(WhichSteps::None) {
        detail.steps.clear();
    }
    app.services.mark(&app, caller.workspace, &mut detail.run).await;
    Ok(Answer::ok(detail))
}

/// Parses the run id of a path.
pub(super) fn run_id(text: &str) -> Result<RunId, Problem> {
    text.parse().map_err(|refused| semel::Error::from(refused).into())
}
