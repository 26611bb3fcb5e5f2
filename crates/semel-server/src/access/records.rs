//! What access keeps in records of the store.

use semel::clock::Time;
use semel::id::WorkspaceId;
use serde::{Deserialize, Serialize};

use crate::api::Permission;
use crate::records::RecordKind;

/// A workspace; its id among records is its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Workspace {
    pub(crate) id: WorkspaceId,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_limit: Option<u32>,
    pub(crate) created_at: Time,
}

impl RecordKind for Workspace {
    const KIND: &'static str = "workspace";
}

/// An API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiKey {
    /// The SHA-256 of its secret.
    pub(super) hash: String,
    pub(crate) name: String,
    pub(crate) workspace: WorkspaceId,
    /// The name of the workspace, under which its record is found.
    pub(crate) workspace_name: String,
    pub(crate) permissions: Vec<Permission>,
    /// Names of roles, for approvals that only some may decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) roles: Vec<String>,
    pub(crate) created_at: Time,
    /// The time from which the key is refused; absent if it has no expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_at: Option<Time>,
}

impl ApiKey {
    /// Whether calls with this key are answered at this time.
    pub(super) fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expiry| now < expiry)
    }
}

impl RecordKind for ApiKey {
    const KIND: &'static str = "api-key";
}
