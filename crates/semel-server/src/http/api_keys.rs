//! `POST /api-keys`, `GET /api-keys`, `DELETE /api-keys/{id}`: for administrators of a workspace, and for root.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{CallKey, PathOf, QueryOf, time_of};
use super::describe::{Always, Changes, IdempotencyKey, OfRun};
use super::{Body, Problem};
use crate::access::keys::{self, NewKey};
use crate::access::records::{ApiKey, Workspace};
use crate::access::{Caller, Concerns, workspaces};
use crate::api::{ApiKeyCreated, ApiKeyList, ApiKeyView, CreateApiKey, time};
use crate::app::App;
use crate::definitions::template::check_name;

/// Maximum length of a key's name, in characters.
const LONGEST_NAME: usize = 200;
/// Maximum number of roles of a key: the key is in memory as long as it is in use.
const MOST_ROLES: usize = 32;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(revoke))
}

/// Create an API key
///
/// The token is only in this answer. A call repeated under its `Idempotency-Key` gets the key without the token.
#[utoipa::path(
    post,
    path = "/api-keys",
    operation_id = "createApiKey",
    tag = "access",
    params(IdempotencyKey),
    request_body(content = CreateApiKey, example = json!({"name": "shop", "permissions": ["start", "read"]})),
    responses(
        (status = 201, description = "The new key with its token", body = ApiKeyCreated),
        (status = 200, description = "The key that an earlier call under the same id created", body = ApiKeyCreated),
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
    let expires = asked.expires_at.as_deref().map(|text| time_of(text, "expiresAt", now)).transpose()?;
    let key = ApiKey::new(asked.name, &workspace, (asked.permissions, asked.roles), (now, expires));
    let new = NewKey { key, call: call.text().map(str::to_owned) };
    let (id, key, token) = keys::create(&app, new).await?;
    let created = token.is_some();
    let token = token.map(|token| token.expose().to_owned());
    let answer = Answer::ok(ApiKeyCreated { key: view(&id.to_string(), &key), token });
    Ok(about(workspace.id, answer.created(created).replayed(!created)))
}

/// Query of `GET /api-keys`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichKeys {
    /// Name or id of the workspace. Only the root token may choose one.
    workspace: Option<String>,
}

/// List API keys
///
/// Keys of the caller's workspace, including revoked and expired ones. The root token sees all keys.
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
    QueryOf(asked): QueryOf<WhichKeys>,
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
/// Within a second every server refuses the key and ends its open streams. Revoking it again changes nothing.
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
    PathOf(id): PathOf<String>,
) -> Result<Response, Problem> {
    caller.may_manage_keys()?;
    let workspace = (!caller.is_root()).then_some(caller.workspace);
    let (id, key, changed) = keys::revoke(&app, workspace, &id).await?;
    Ok(about(key.workspace, Answer::ok(view(&id.to_string(), &key)).replayed(!changed)))
}

/// An answer with the workspace that it is about.
fn about(workspace: semel::id::WorkspaceId, answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.extensions_mut().insert(Concerns(workspace));
    response
}

/// The workspace of a call: root may choose one, other callers have their own.
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
    // Whether another workspace of that name exists is not disclosed.
    match found {
        Ok(workspace) if workspace.id == caller.workspace => Ok(workspace),
        Err(unanswered) if unanswered.code() == semel::ErrorCode::Unavailable => Err(unanswered),
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
        return Err(Problem::validation(
            "`permissions` is empty: give some of start, read, worker, define, decide, operate, admin",
        ));
    }
    if asked.roles.len() > MOST_ROLES {
        return Err(Problem::validation(format!("`roles` has at most {MOST_ROLES} names")));
    }
    if let Some(why) = asked.roles.iter().find_map(|role| check_name(role).err()) {
        return Err(Problem::validation(format!("`roles`: {why}")));
    }
    Ok(())
}

fn view(id: &str, key: &ApiKey) -> ApiKeyView {
    ApiKeyView {
        id: id.to_owned(),
        name: key.name.clone(),
        workspace: key.workspace_name.clone(),
        permissions: key.permissions.clone(),
        roles: key.roles.clone(),
        created_at: time(key.created_at),
        expires_at: key.expires_at.map(time),
        revoked_at: key.revoked_at.map(time),
    }
}
