//! Settings: API keys, the audit, and what this server is.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::Response;

use super::Ui;
use super::desk::{Call, CallAnswer, PageRefusal};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, when};
use super::query::{Fields, SentForm, encoded, query};
use crate::api::{ApiKeyCreated, ApiKeyList, ApiKeyView, AuditList, CreateApiKey, Permission};
use crate::http::Problem;

/// Permissions that a key can have, with what they allow.
const PERMISSIONS: [(Permission, &str, &str); 7] = [
    (Permission::Read, "read", "read runs, ledgers, keys and hooks"),
    (Permission::Start, "start", "start runs and deliver to hooks"),
    (Permission::Worker, "worker", "drive runs and remote steps"),
    (Permission::Define, "define", "push definitions"),
    (Permission::Decide, "decide", "decide approvals"),
    (Permission::Operate, "operate", "control runs, decide doubts, deliver, release keys"),
    (Permission::Admin, "admin", "everything in the workspace"),
];

/// An API key.
struct ApiKeyRow {
    id: String,
    name: String,
    permissions: String,
    created: Markup,
    expires: Option<Markup>,
    revoked: Option<Markup>,
}

impl From<&ApiKeyView> for ApiKeyRow {
    fn from(key: &ApiKeyView) -> Self {
        let word = |permission: &Permission| {
            PERMISSIONS.iter().find(|(known, ..)| known == permission).map_or("", |(_, word, _)| *word)
        };
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            permissions: key.permissions.iter().map(word).collect::<Vec<_>>().join(", "),
            created: when(&key.created_at),
            expires: key.expires_at.as_deref().map(when),
            revoked: key.revoked_at.as_deref().map(when),
        }
    }
}

/// A call in the audit.
struct ActRow {
    at: Markup,
    by: String,
    call: String,
    subject: String,
    status: u16,
}

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    frame: PageFrame,
    /// None if the person may not see them.
    keys: Option<Vec<ApiKeyRow>>,
    /// The token of a key that was created just now: it is shown once.
    token: Option<String>,
    permissions: &'static [(Permission, &'static str, &'static str)],
    acts: Vec<ActRow>,
    older: Option<String>,
}

/// `GET /w/{workspace}/settings`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    show(&ui, &visitor, &asked, None).await
}

async fn show(
    ui: &Ui,
    visitor: &Visitor,
    asked: &Fields,
    token: Option<String>,
) -> Result<Response, PageRefusal> {
    let keys: Option<ApiKeyList> = ui.look(visitor, "/api-keys").await?;
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let audit: Option<AuditList> = ui.look(visitor, &format!("/audit{}", query(cursor))).await?;
    let audit = audit.unwrap_or(AuditList { calls: Vec::new(), next: None });
    let act = |act: crate::api::AuditView| ActRow {
        at: when(&act.at),
        by: act.by,
        call: act.call,
        subject: act.subject,
        status: act.status,
    };
    let page = SettingsPage {
        frame: PageFrame::of(ui, visitor, Section::Settings, "Settings"),
        keys: keys.map(|list| list.keys.iter().map(Into::into).collect()),
        token,
        permissions: &PERMISSIONS,
        older: audit
            .next
            .as_ref()
            .map(|next| visitor.to(&format!("/settings{}", query([("cursor", next.as_str())])))),
        acts: audit.calls.into_iter().map(act).collect(),
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/settings/keys`: creates an API key. The page of the answer shows its token, once.
pub(super) async fn create(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let chosen: Vec<_> = form.all("permission").collect();
    let wanted = PERMISSIONS.iter().filter(|(_, word, _)| chosen.contains(word));
    let body = CreateApiKey {
        name: form.get("name").unwrap_or_default().to_owned(),
        permissions: wanted.map(|(permission, ..)| *permission).collect(),
        roles: form
            .get("roles")
            .map(|roles| roles.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        workspace: None,
        expires_at: None,
    };
    let created: CallAnswer<ApiKeyCreated> =
        ui.send(&visitor, Call::post("/api-keys".to_owned(), form.call(), &body)).await?;
    let Some(token) = created.value.token else {
        return Err(Problem::conflict(
            "this key was created before, and its token was shown then; revoke it and make another one",
        )
        .into());
    };
    show(&ui, &visitor, &Fields::default(), Some(token)).await
}

/// `POST /w/{workspace}/settings/keys/{id}/revoke`.
pub(super) async fn revoke(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, id)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    let path = format!("/api-keys/{}", encoded(&id));
    let call = Call { method: Method::DELETE, path, key: None, body: String::new() };
    let _: CallAnswer<ApiKeyView> = ui.send(&visitor, call).await?;
    Ok(frame::back(&visitor.to("/settings"), "revoked"))
}
