//! Workspaces, API keys, the audit and workers.

use serde::{Deserialize, Serialize};

/// A permission of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Starts runs and delivers to hooks.
    Start,
    /// Reads runs, ledgers, keys and hooks.
    Read,
    /// Claims and commits runs, and takes remote steps.
    Worker,
    /// Pushes definitions, chooses their current version, archives them.
    Define,
    /// Decides approvals: those without roles, and those for a role of the key.
    Decide,
    /// Controls runs, decides steps in doubt, delivers to hooks, releases keys. For people on call.
    Operate,
    /// Everything in the workspace, including control of runs and management of API keys.
    Admin,
}

/// Body of `POST /workspaces`, which needs the root token.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWorkspace {
    /// Name of the workspace, unique on this server.
    pub name: String,
    /// Calls per second that the workspace may make. The server's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
}

/// A workspace: a tenant with its own runs, keys and tokens.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceView {
    /// Id of the workspace (`ws_…`).
    pub id: String,
    /// Name of the workspace.
    pub name: String,
    /// Calls per second that the workspace may make. Absent if the server's default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
    /// Time of creation, RFC 3339.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// Answer of `GET /workspaces`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceList {
    /// All workspaces of the server.
    pub workspaces: Vec<WorkspaceView>,
}

/// Body of `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApiKey {
    /// Description of what the key is for.
    pub name: String,
    /// Permissions of the key.
    pub permissions: Vec<Permission>,
    /// Roles of the key, such as `sales`: an approval can say which roles may decide it. None if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Name or id of the workspace. Only the root token may choose one; other callers get their own workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Time from which the key is refused, RFC 3339; it must be in the future. If absent, the key does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyView {
    /// Id of the key.
    pub id: String,
    /// Description of what the key is for.
    pub name: String,
    /// Id of the key's workspace.
    pub workspace: String,
    /// Permissions of the key.
    pub permissions: Vec<Permission>,
    /// Roles of the key, for approvals. Absent if it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// Time of creation, RFC 3339.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time from which the key is refused, RFC 3339. Absent if it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// Time of the revocation, RFC 3339. Absent if the key is not revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub revoked_at: Option<String>,
}

/// Answer of `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyCreated {
    /// The API key that was created, without its secret.
    #[serde(flatten)]
    pub key: ApiKeyView,
    /// The secret token. It is shown only in the first answer; absent when the call is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Answer of `GET /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyList {
    /// All keys of the workspace, including revoked ones.
    pub keys: Vec<ApiKeyView>,
}

/// Body of `POST /session`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    /// Token of an API key. The workspace is that of the key.
    pub api_key: String,
    /// Name of the person, as ledgers and the audit show it.
    pub name: String,
}

/// A session of a person at the console.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Name of the person, as ledgers and the audit show it.
    pub name: String,
    /// Workspaces that the session may enter, the last one that signed in first.
    pub workspaces: Vec<MembershipView>,
    /// Time from which the session is refused unless it is used before, RFC 3339.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// A workspace of a session, and the API key by which it is entered.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MembershipView {
    /// Name of the workspace.
    pub workspace: String,
    /// Id of the API key.
    pub key: String,
    /// Permissions of the key.
    pub permissions: Vec<Permission>,
}

/// One administrative call, as the audit records it.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// Time of the call, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Id of the calling API key, or `root`.
    pub by: String,
    /// Method and route of the call.
    pub call: String,
    /// Path of the call, with its ids.
    pub subject: String,
    /// HTTP status of the answer. 499 if the caller disconnected before the answer: the call may have taken place.
    pub status: u16,
}

/// Answer of `GET /audit`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditList {
    /// Administrative calls of this page, newest first.
    pub calls: Vec<AuditView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A remote worker with a current registration.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Node id of the worker.
    pub node: String,
    /// Name that the worker has registered with.
    pub name: String,
    /// Workflows (`name@version`) that the worker drives, and queues (`queue:name`) that it serves.
    pub serves: Vec<String>,
    /// Time of the worker's last call, RFC 3339.
    #[schema(format = DateTime)]
    pub seen_at: String,
}

/// An engine in a process that opens the store itself, beside this server.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineView {
    /// Node id of the engine.
    pub node: String,
    /// Name of the engine: that of its program, unless it was given another.
    pub name: String,
    /// Host name of its machine; empty if unknown.
    pub host: String,
    /// Process id on that machine.
    pub pid: u32,
    /// Workflows (`name@version`) that the engine drives; `*@doc1_*` means all versions with that prefix.
    pub serves: Vec<String>,
    /// Time at which the engine was opened, RFC 3339.
    #[schema(format = DateTime)]
    pub since: String,
}

/// Answer of `GET /workers`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    /// Engines of the workspace in processes that open the store themselves; on the first page only.
    #[serde(default)]
    pub engines: Vec<EngineView>,
    /// Workers of the workspace on this page.
    pub workers: Vec<WorkerView>,
    /// Cursor of the next page: pass it as `cursor`. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
