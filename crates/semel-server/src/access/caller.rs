//! Whoever makes a call.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use semel::id::WorkspaceId;
use subtle::ConstantTimeEq;

use super::Access;
use crate::api::Permission;
use crate::app::App;
use crate::config::Secret;
use crate::http::Problem;

/// Whoever makes a call. A route takes it as an argument and asks it for a permission first.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The only workspace it can see.
    pub workspace: WorkspaceId,
    /// What is written into ledgers and the audit: the name of the key.
    pub name: String,
    /// What it may do.
    pub permissions: Vec<Permission>,
}

impl Caller {
    /// Refuses a caller that may not do this.
    pub fn may(&self, permission: Permission) -> Result<(), Problem> {
        if self.permissions.contains(&permission) || self.permissions.contains(&Permission::Admin) {
            return Ok(());
        }
        let wanted = format!("{permission:?}").to_lowercase();
        Err(Problem::forbidden(format!("this API key lacks the permission `{wanted}`; use one that has it")))
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        // Known at the gate; a test may have none.
        if let Some(caller) = parts.extensions.get::<Self>() {
            return Ok(caller.clone());
        }
        match &app.access {
            Access::Keys { root } if !is_root(&parts.headers, root.as_ref()) => {
                Err(Problem::auth("no valid credential"))
            }
            Access::Open | Access::Keys { .. } => Ok(Self {
                workspace: WorkspaceId::DEFAULT,
                name: "local".to_owned(),
                permissions: vec![Permission::Admin],
            }),
        }
    }
}

fn is_root(headers: &HeaderMap, root: Option<&Secret>) -> bool {
    let given = headers.get("authorization").and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    root.is_some_and(|root| given.is_some_and(|given| given.ct_eq(root.expose().as_bytes()).into()))
}
