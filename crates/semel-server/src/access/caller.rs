//! The caller of a request, and what it may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use semel::id::{ApiKeyId, WorkspaceId};

use super::records::ApiKey;
use crate::api::Permission;
use crate::app::App;
use crate::http::Problem;

/// The caller of a request. A route takes it as an argument and checks a permission first.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The only workspace it can see.
    pub workspace: WorkspaceId,
    /// Name of the key, as it is written into ledgers.
    pub name: String,
    /// The permissions of the key.
    pub permissions: Vec<Permission>,
    /// The roles of the key, for approvals.
    pub roles: Vec<String>,
    /// The API key; none for the root token, and without authentication.
    key: Option<ApiKeyId>,
    /// The person who uses the key at the console; none if a program calls.
    person: Option<String>,
    root: bool,
    rate: u32,
    /// Whether a permission of administrators was asked for and given. Such calls are written into the audit.
    administers: Arc<AtomicBool>,
}

impl Caller {
    /// A caller in a workspace with these permissions, for tests of routes.
    pub fn new(workspace: WorkspaceId, name: &str, permissions: Vec<Permission>) -> Self {
        let (name, root) = (name.to_owned(), false);
        Self { workspace, name, permissions, root, ..Self::root() }
    }

    /// Any caller of a server without authentication: may do everything, in the default workspace.
    pub(super) fn local() -> Self {
        Self { name: "local".to_owned(), permissions: vec![Permission::Admin], ..Self::root() }
    }

    /// The holder of the root token: creates workspaces and API keys, and nothing else.
    pub(super) fn root() -> Self {
        Self {
            workspace: WorkspaceId::DEFAULT,
            name: "root".to_owned(),
            permissions: Vec::new(),
            roles: Vec::new(),
            key: None,
            person: None,
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
            roles: key.roles.clone(),
            key: Some(id),
            person: None,
            root: false,
            rate,
            administers: Arc::default(),
        }
    }

    /// The same caller with the name of the person who uses the key.
    pub(super) fn of_person(self, person: &str) -> Self {
        Self { name: format!("{person} (key: {})", self.name), person: Some(person.to_owned()), ..self }
    }

    /// Refuses a caller that may not do this. A call that administers something is written into the audit.
    pub fn may(&self, permission: Permission) -> Result<(), Problem> {
        self.may_try(permission)?;
        if matches!(permission, Permission::Admin | Permission::Define | Permission::Operate) {
            self.administers.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses a caller that may not do this, for a call that changes nothing.
    pub fn may_try(&self, permission: Permission) -> Result<(), Problem> {
        if self.permissions.contains(&permission) || self.permissions.contains(&Permission::Admin) {
            return Ok(());
        }
        let wanted = format!("{permission:?}").to_lowercase();
        Err(Problem::forbidden(if self.root {
            format!(
                "the root token can only create workspaces and API keys; create an API key with the permission `{wanted}` and use it"
            )
        } else {
            format!("this API key lacks the permission `{wanted}`; use one that has it")
        }))
    }

    /// Refuses a caller that may not decide an approval with these roles; without any, every caller with the permission may.
    /// An administrator always may.
    pub fn may_decide(&self, roles: &[String]) -> Result<(), Problem> {
        self.may(Permission::Decide)?;
        let has_role = roles.is_empty() || roles.iter().any(|role| self.roles.contains(role));
        if has_role || self.permissions.contains(&Permission::Admin) {
            return Ok(());
        }
        let roles = roles.iter().map(|role| format!("`{role}`")).collect::<Vec<_>>().join(", ");
        Err(Problem::forbidden(format!(
            "only a key with one of the roles {roles} may decide this; use one that has it"
        )))
    }

    /// Refuses a caller that may not deliver to hooks: programs that start runs do, and operators.
    pub fn may_deliver(&self) -> Result<(), Problem> {
        self.may(Permission::Start).or_else(|lacking| self.may(Permission::Operate).map_err(|_| lacking))
    }

    /// Refuses a caller that may neither read nor decide.
    pub fn may_see_approvals(&self) -> Result<(), Problem> {
        self.may(Permission::Decide).or_else(|_| self.may(Permission::Read))
    }

    /// Refuses every caller but root.
    pub fn must_be_root(&self) -> Result<(), Problem> {
        if !self.root {
            return Err(Problem::forbidden("only the root token may do this (SEMEL_ROOT_TOKEN)"));
        }
        self.administers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Refuses a caller that may neither read runs nor drive them.
    pub fn may_read_or_work(&self) -> Result<(), Problem> {
        self.may(Permission::Worker).or_else(|_| self.may(Permission::Read))
    }

    /// Refuses callers that may not manage keys: root manages those of all workspaces, an administrator those of its own.
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

    /// Its credential, as the audit and the record of a worker name it.
    pub(crate) fn title(&self) -> String {
        match (self.key, &self.person) {
            (Some(key), None) => key.to_string(),
            (Some(key), Some(person)) => format!("{person} ({key})"),
            (None, _) => self.name.clone(),
        }
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // The gate has authenticated it; a router without a gate does it here.
        match parts.extensions.get::<Self>() {
            Some(caller) => Ok(caller.clone()),
            None => app.access.caller(app, &parts.headers).await,
        }
    }
}
