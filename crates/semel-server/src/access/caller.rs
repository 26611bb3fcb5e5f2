//! Whoever makes a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use semel::id::{ApiKeyId, WorkspaceId};

use super::records::ApiKey;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;

/// Whoever makes a call. A route takes it as an argument and asks it for a permission first.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The only workspace it can see.
    pub workspace: WorkspaceId,
    /// What is written into ledgers: the name of the key.
    pub name: String,
    /// What it may do.
    pub permissions: Vec<Permission>,
    /// The key; none for root, and where nobody is asked.
    key: Option<ApiKeyId>,
    root: bool,
    rate: u32,
    /// Whether a permission of administrators was asked for and given. Such calls are written into the audit.
    administers: Arc<AtomicBool>,
}

impl Caller {
    /// Somebody in a workspace who may do this, for tests of routes.
    pub fn new(workspace: WorkspaceId, name: &str, permissions: Vec<Permission>) -> Self {
        let (name, root) = (name.to_owned(), false);
        Self { workspace, name, permissions, root, ..Self::root() }
    }

    /// Everybody, where nobody is asked: may do everything, in the default workspace.
    pub(super) fn local() -> Self {
        Self { name: "local".to_owned(), permissions: vec![Permission::Admin], ..Self::root() }
    }

    /// Whoever has the root token: makes workspaces and API keys, and nothing else.
    pub(super) fn root() -> Self {
        Self {
            workspace: WorkspaceId::DEFAULT,
            name: "root".to_owned(),
            permissions: Vec::new(),
            key: None,
            root: true,
            rate: 0,
            administers: Arc::default(),
        }
    }

    pub(super) fn of_key(id: ApiKeyId, key: &ApiKey, rate: u32) -> Self {
        Self {
            workspace: key.workspace,
            name: key.name.clone(),
            permissions: key.permissions.clone(),
            key: Some(id),
            root: false,
            rate,
            administers: Arc::default(),
        }
    }

    /// Refuses a caller that may not do this.
    pub fn may(&self, permission: Permission) -> Result<(), Problem> {
        if self.permissions.contains(&permission) || self.permissions.contains(&Permission::Admin) {
            if permission == Permission::Admin {
                self.administers.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        let wanted = format!("{permission:?}").to_lowercase();
        Err(Problem::forbidden(if self.root {
            format!(
                "the root token makes workspaces and API keys only; make a key with `{wanted}` and use that"
            )
        } else {
            format!("this API key lacks the permission `{wanted}`; use one that has it")
        }))
    }

    /// Refuses everybody but root.
    pub fn must_be_root(&self) -> Result<(), Problem> {
        if !self.root {
            return Err(Problem::forbidden("only the root token may do this (SEMEL_ROOT_TOKEN)"));
        }
        self.administers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses whoever may not manage keys: root may those of all workspaces, an administrator those of the own.
    pub fn may_manage_keys(&self) -> Result<(), Problem> {
        if self.root { self.must_be_root() } else { self.may(Permission::Admin) }
    }

    /// Whether it has the root token.
    pub fn is_root(&self) -> bool {
        self.root
    }

    pub(super) fn key(&self) -> Option<ApiKeyId> {
        self.key
    }

    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    pub(super) fn administers(&self) -> bool {
        self.administers.load(Ordering::Relaxed)
    }

    /// Its credential, as it stands in the audit and in the record of a worker.
    pub(crate) fn title(&self) -> String {
        self.key.map_or_else(|| self.name.clone(), |key| key.to_string())
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // Known at the gate; a router without one asks here.
        match parts.extensions.get::<Self>() {
            Some(caller) => Ok(caller.clone()),
            None => app.access.caller(app, &parts.headers).await,
        }
    }
}
