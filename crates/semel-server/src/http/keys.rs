//! `GET /keys/{key}` and `POST /keys/{key}/release`.

pub(crate) mod list;

use std::sync::Arc;

use axum::extract::State;
use semel::id::RunId;
use semel::rules::control::ControlAction;
use semel::rules::entry::Outcome;
use semel::rules::key::{Key, Scope};
use semel::rules::run::Run;
use semel::store::{Find, FindBy};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{PathOf, QueryOf};
use super::call::OperatorCall;
use super::describe::{Always, Changes, IdempotencyKey, OfRun};
use super::view::{duplicates_view, run_view};
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{ControlAnswer, ControlRun, KeyView, Permission, time};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(get)).routes(routes!(list::list)).routes(routes!(release))
}

/// Query with the scope of a key.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeyScope {
    /// Scope of the key, as runs show it: `*` (the workspace; default), `w/order` (a workflow), `v/order/1` (a
    /// workflow version), `child` (children of runs).
    scope: Option<String>,
}

/// Parses the scope of a query.
pub(super) fn scope_of(text: Option<&str>) -> Result<Scope, Problem> {
    let text = text.unwrap_or("*");
    Scope::parse(text).ok_or_else(|| {
        Problem::validation(format!(
            "{text:?} is not a scope; write *, w/order, v/order/1 or child, as runs show it"
        ))
    })
}

/// Show the holder of a key
///
/// The run that holds the key, and the duplicates that it has absorbed, with their times.
#[utoipa::path(
    get,
    path = "/keys/{key}",
    operation_id = "getKey",
    tag = "keys",
    params(("key" = String, Path, description = "The idempotency key", example = "order-7"), KeyScope),
    responses((status = 200, description = "The key and its run", body = KeyView), Always, OfRun),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(key): PathOf<String>,
    QueryOf(asked): QueryOf<KeyScope>,
) -> Result<Answer<KeyView>, Problem> {
    caller.may(Permission::Read)?;
    let (key, scope) = (key_of(key)?, scope_of(asked.scope.as_deref())?);
    let (run, outcome) = holder(&app, &caller, &scope, &key).await?.ok_or_else(|| free(&key))?;
    let receipts = app.store.receipts(caller.workspace, run.id()).await?;
    Ok(Answer::ok(KeyView {
        key: key.to_string(),
        scope: scope.as_str().to_owned(),
        fingerprint: format!("{:?}", run.new.fingerprint),
        remembered_until: run.state.ended.map(|ended| time(ended.after(run.new.retention.key))),
        earlier: list::earlier(&app, &caller, &scope, &key).await?,
        run: run_view(&run, outcome.as_ref()),
        duplicates: duplicates_view(receipts),
    }))
}

/// Release a key
///
/// Its run continues; the next start with the key creates a new run.
#[utoipa::path(
    post,
    path = "/keys/{key}/release",
    operation_id = "releaseKey",
    tag = "keys",
    params(("key" = String, Path, description = "The idempotency key", example = "order-7"), KeyScope, IdempotencyKey),
    request_body(content = ControlRun, example = json!({})),
    responses(
        (status = 200, description = "The run that held the key", body = ControlAnswer),
        Always,
        OfRun,
        Changes,
    ),
)]
async fn release(
    call: OperatorCall,
    PathOf(key): PathOf<String>,
    QueryOf(asked): QueryOf<KeyScope>,
    Body(body): Body<ControlRun>,
) -> Result<Answer<ControlAnswer>, Problem> {
    let (key, scope) = (key_of(key)?, scope_of(asked.scope.as_deref())?);
    let run = match released_before(&call, &scope, &key).await? {
        Some(run) => run,
        None => {
            let held = holder(&call.app, &call.caller, &scope, &key).await?;
            held.ok_or_else(|| free(&key))?.0.id()
        }
    };
    Ok(call.control(run, ControlAction::ReleaseKey, body.expected_version).await?.0)
}

/// The run that released this key by an earlier try of the same call: found by the call's id, because the key no
/// longer points at it.
async fn released_before(call: &OperatorCall, scope: &Scope, key: &Key) -> Result<Option<RunId>, Problem> {
    let Some(id) = &call.key.0 else { return Ok(None) };
    let find = Find { workspace: call.caller.workspace, by: FindBy::Call(id.clone()) };
    let run = call.app.store.find(find).await?.map(|(run, _)| run);
    Ok(run.filter(|run| run.new.key == *key && run.new.scope == *scope).map(|run| run.id()))
}

async fn holder(
    app: &App,
    caller: &Caller,
    scope: &Scope,
    key: &Key,
) -> Result<Option<(Run, Option<Outcome>)>, Problem> {
    let by = FindBy::Key(scope.clone(), key.clone());
    Ok(app.store.find(Find { workspace: caller.workspace, by }).await?)
}

fn key_of(text: String) -> Result<Key, Problem> {
    Key::new(text).map_err(|refused| semel::Error::from(refused).into())
}

fn free(key: &Key) -> Problem {
    Problem::not_found(format!("no run holds the key {key} in this scope; it is free, or has another scope"))
}
