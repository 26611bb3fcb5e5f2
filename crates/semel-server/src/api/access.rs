//! Workspaces, API keys, audit, workers.

use serde::{Deserialize, Serialize};

/// What a key allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Start runs, deliver to hooks.
    Start,
    /// Read runs, ledgers, keys, hooks.
    Read,
    /// Claim and commit runs, take steps.
    Worker,
    /// Everything, control and API keys of the workspace included.
    Admin,
}

/// A new workspace: `POST /workspaces` (root only).
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWorkspace {
    /// Its name, unique among workspaces.
    pub name: String,
    /// Calls per second that it may make; the server's default if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
}

/// A workspace.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Calls per second that it may make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
    /// When it was created.
    pub created_at: String,
}

/// Workspaces.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceList {
    /// All of them.
    pub workspaces: Vec<WorkspaceView>,
}

/// A new API key: `POST /api-keys`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApiKey {
    /// What it is for, in words.
    pub name: String,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// For which workspace, by name or id; only root may choose, everybody else gets their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The time from which the key is refused, as RFC 3339; it must be in the future. Without it the key has no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// An API key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyView {
    /// Its id.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// Its workspace.
    pub workspace: String,
    /// What it allows.
    pub permissions: Vec<Permission>,
    /// When it was created.
    pub created_at: String,
    /// The time from which it is refused; absent if it has no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

/// A created API key.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyCreated {
    /// The key.
    #[serde(flatten)]
    pub key: ApiKeyView,
    /// The secret, shown this once; absent in a repeated answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// The API keys of a workspace.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyList {
    /// All of them, revoked ones included.
    pub keys: Vec<ApiKeyView>,
}

/// One administrative call.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditView {
    /// When.
    pub at: String,
    /// The API key, or `root`.
    pub by: String,
    /// What was called.
    pub call: String,
    /// On what.
    pub subject: String,
    /// How it was answered; 499 if nobody waited for the answer, and it may have taken place.
    pub status: u16,
}

/// Administrative calls, the newest first.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditList {
    /// This page.
    pub calls: Vec<AuditView>,
    /// Ask with `cursor=` this for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A remote worker that has been heard of lately.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Its node.
    pub node: String,
    /// What it calls itself.
    pub name: String,
    /// The workflows (`name@version`) that it drives, and the queues (`queue:name`) that it serves.
    pub serves: Vec<String>,
    /// When it was last heard.
    pub seen_at: String,
}

/// Remote workers: `GET /workers`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerList {
    /// This page of those of the workspace.
    pub workers: Vec<WorkerView>,
    /// Ask with `cursor=` this for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
