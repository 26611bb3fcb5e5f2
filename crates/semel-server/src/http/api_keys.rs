//! `POST /api-keys`, `GET /api-keys`, `DELETE /api-keys/{id}`: for administrators of a workspace, and for root.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use semel::clock::Time;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{Asked, At, CallKey};
use super::describe::{Always, Changes, IdempotencyKey, OfRun};
use super::{Body, Problem};
use crate::access::keys::{self, NewKey};
use crate::access::records::{ApiKey, Workspace};
use crate::access::{Caller, Concerns, workspaces};
use crate::api::{ApiKeyCreated, ApiKeyList, ApiKeyView, CreateApiKey, time};
use crate::app::App;

/// The longest name of a key.
const LONGEST_NAME: usize = 200;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke))
}

/// Create an API key
///
/// The token is in this answer and nowhere else. A call repeated under its `Idempotency-Key` gets the key without it.
#[utoipa::path(
    post,
    path = "/api-keys",
    operation_id = "createApiKey",
    tag = "access",
    params(IdempotencyKey),
    request_body(content = CreateApiKey, example = json!({"name": "shop", "permissions": ["start", "read"]})),
    responses(
        (status = 201, description = "The new key with its token", body = ApiKeyCreated),
        (status = 200, description = "The call was made before", body = ApiKeyCreated),
        Always,
        OfRun,
        Changes,
    ),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    call: CallKey,
    Body(asked): Body<CreateApiKey>,
) -> Result<Response, Problem> {
    caller.may_manage_keys()?;
    check(&asked)?;
    let workspace = workspace_of(&app, &caller, asked.workspace.as_deref()).await?;
    let now = app.clock.now();
    let expires = asked.expires_at.as_deref().map(|text| expiry(text, now)).transpose()?;
    let key = ApiKey::new(asked.name, &workspace, asked.permissions, (now, expires));
    let new = NewKey { key, call: call.text().map(str::to_owned) };
    let (id, key, token) = keys::create(&app, new).await?;
    let created = token.is_some();
    let token = token.map(|token| token.expose().to_owned());
    let answer = Answer::ok(ApiKeyCreated { key: view(&id.to_string(), &key), token });
    Ok(about(workspace.id, answer.created(created).replayed(!created)))
}

/// Which keys.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichKeys {
    /// Those of this workspace, by name or id; only root may choose.
    workspace: Option<String>,
}

/// List API keys
///
/// Those of the caller's workspace, revoked and expired ones included; root sees those of all.
#[utoipa::path(
    get,
    path = "/api-keys",
    operation_id = "listApiKeys",
    tag = "access",
    params(WhichKeys),
    responses((status = 200, description = "The keys", body = ApiKeyList), Always, OfRun),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Asked(asked): Asked<WhichKeys>,
) -> Result<Answer<ApiKeyList>, Problem> {
    caller.may_manage_keys()?;
    let workspace = match (caller.is_root(), &asked.workspace) {
        (true, None) => None,
        (_, asked) => Some(workspace_of(&app, &caller, asked.as_deref()).await?.id),
    };
    let keys = keys::list(&app, workspace).await?;
    Ok(Answer::ok(ApiKeyList { keys: keys.iter().map(|(id, key)| view(id, key)).collect() }))
}

/// Revoke an API key
///
/// Within a second no server takes it any more, and its open streams end. Revoking it again changes nothing.
#[utoipa::path(
    delete,
    path = "/api-keys/{id}",
    operation_id = "revokeApiKey",
    tag = "access",
    params(("id" = String, Path, description = "The key's id", example = "key_01k5c000000000000000000000")),
    responses((status = 200, description = "The revoked key", body = ApiKeyView), Always, OfRun, Changes),
)]
async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    At(id): At<String>,
) -> Result<Response, Problem> {
    caller.may_manage_keys()?;
    let workspace = (!caller.is_root()).then_some(caller.workspace);
    let (id, key, changed) = keys::revoke(&app, workspace, &id).await?;
    Ok(about(key.workspace, Answer::ok(view(&id.to_string(), &key)).replayed(!changed)))
}

/// The answer, with the workspace it is about.
fn about(workspace: semel::id::WorkspaceId, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.extensions_mut().insert(Concerns(workspace));
    response
}

/// The workspace that is meant: root may choose, everybody else has their own.
pub(super) async fn workspace_of(
    app: &App,
    caller: &Caller,
    asked: Option<&str>,
) -> Result<Workspace, Problem> {
    let own = caller.workspace.to_string();
    let found = workspaces::find(app, asked.unwrap_or(&own)).await;
    if caller.is_root() {
        return found;
    }
    // Whether there is another workspace of that name is nobody's business.
    match found {
        Ok(workspace) if workspace.id == caller.workspace => Ok(workspace),
        Err(unanswered) if unanswered.code() == "UNAVAILABLE" => Err(unanswered),
        _ => {
            Err(Problem::forbidden("an API key belongs to one workspace; leave `workspace` out, or ask root"))
        }
    }
}

fn check(asked: &CreateApiKey) -> Result<(), Problem> {
    let name = asked.name.trim();
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(Problem::validation(format!(
            "`name` has 1 to {LONGEST_NAME} characters, none of them a control"
        )));
    }
    if asked.permissions.is_empty() {
        return Err(Problem::validation("`permissions` is empty: give some of start, read, worker, admin"));
    }
    Ok(())
}

/// The time of an expiry; refused if it has passed, because a key that was never valid is a mistake.
fn expiry(text: &str, now: Time) -> Result<Time, Problem> {
    let at = text.parse::<Timestamp>().map(|at| Time(at.as_millisecond()));
    at.ok().filter(|at| *at > now).ok_or_else(|| {
        Problem::validation(format!(
            "`expiresAt` is a future time like 2030-01-31T12:00:00Z, and not {text:?}"
        ))
    })
}

fn view(id: &str, key: &ApiKey) -> ApiKeyView {
    ApiKeyView {
        id: id.to_owned(),
        name: key.name.clone(),
        workspace: key.workspace_name.clone(),
        permissions: key.permissions.clone(),
        created_at: time(key.created_at),
        expires_at: key.expires_at.map(time),
        revoked_at: key.revoked_at.map(time),
    }
}
