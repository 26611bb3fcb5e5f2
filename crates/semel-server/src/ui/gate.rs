//! Who reads a page. On a server with API keys it is a person with a session, who enters a workspace by the key of that
//! workspace; on a local server it is any caller of this machine.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::query::encoded;
use crate::access::site::Site;
use crate::access::{Caller, sessions};
use crate::api::Permission;
use crate::http::Problem;
use crate::serve::CalledIn;

/// The only workspace of a server without authentication.
pub(super) const LOCAL: &str = "default";

/// Reader of a page.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// As the API knows it.
    pub(super) caller: Caller,
    /// Name of the person.
    pub(super) person: String,
    /// Name of the workspace in the address.
    pub(super) workspace: String,
    /// All workspaces of the session.
    pub(super) workspaces: Vec<String>,
    /// Whether the server has a login.
    pub(super) signed_in: bool,
    /// Path and query of the page.
    pub(super) place: String,
}

impl Visitor {
    /// Address of a page of the workspace, from its path below it.
    pub(super) fn to(&self, path: &str) -> String {
        format!("/w/{}{path}", encoded(&self.workspace))
    }

    /// Whether a permission is there.
    pub(super) fn may(&self, permission: Permission) -> bool {
        self.caller.may_try(permission).is_ok()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = PageRefusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, PageRefusal> {
        let visitor = parts.extensions.get::<Self>().cloned();
        visitor.ok_or_else(|| Problem::auth("sign in first").into())
    }
}

/// Refuses what changes something and does not come from a page of this server.
pub(super) async fn own_site(request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD)
        && let Err(problem) = Site::of(request.uri(), request.headers()).must_be_own()
    {
        return problem.into_response();
    }
    let response = next.run(request).await;
    // Outside a workspace there is no frame to show it in.
    match response.extensions().get::<PageRefusal>() {
        Some(PageRefusal(problem)) => {
            (response.status(), serde_json::to_string(problem).unwrap_or_default()).into_response()
        }
        None => response,
    }
}

/// Lets only visitors of the workspace through, and shows them what was refused as a page.
pub(super) async fn visitors(State(ui): State<Arc<Ui>>, mut request: Request, next: Next) -> Response {
    if ui.app.stop.is_ordered() {
        return Problem::unavailable("this server is stopping; load the page again in a moment")
            .into_response();
    }
    let (mut parts, body) = request.into_parts();
    let workspace = Path::<Vec<(String, String)>>::from_request_parts(&mut parts, &()).await;
    let named = workspace.ok().and_then(|Path(all)| all.into_iter().find(|(name, _)| name == "workspace"));
    let Some((_, workspace)) = named else {
        return Problem::validation("the address is not valid; use the links of the pages").into_response();
    };
    let place = parts.uri.path_and_query().map_or("/", |whole| whole.as_str()).to_owned();
    request = Request::from_parts(parts, body);
    let visitor = match enter(&ui, request.headers(), workspace, place.clone()).await {
        Ok(Some(visitor)) => visitor,
        Ok(None) => return to_login(&request, &place),
        Err(problem) => return problem.into_response(),
    };
    request.extensions_mut().insert(visitor.clone());
    let mut response = next.run(request).await;
    if let Some(refused) = response.extensions_mut().remove::<PageRefusal>() {
        response = frame::refusal(PageFrame::of(&ui, &visitor, Section::None, &refused.0.title), &refused.0);
    }
    response.extensions_mut().insert(CalledIn(visitor.caller.workspace));
    response
}

/// The visitor of a workspace; none if a person has to sign in first.
async fn enter(
    ui: &Ui,
    headers: &HeaderMap,
    workspace: String,
    place: String,
) -> Result<Option<Visitor>, Problem> {
    if let Some(caller) = ui.app.access.anyone() {
        if workspace != LOCAL {
            let detail = format!(
                "this server has one workspace: /w/{LOCAL}/; others are there on a server with API keys"
            );
            return Err(Problem::not_found(detail));
        }
        let (person, workspaces) = (caller.name.clone(), vec![workspace.clone()]);
        return Ok(Some(Visitor { caller, person, workspace, workspaces, signed_in: false, place }));
    }
    let Some(session) = sessions::find(&ui.app, headers).await? else { return Ok(None) };
    let Some(caller) = sessions::caller(&ui.app, &session, &workspace).await? else { return Ok(None) };
    let workspaces = session.memberships.iter().map(|member| member.workspace.clone()).collect();
    Ok(Some(Visitor { caller, person: session.name, workspace, workspaces, signed_in: true, place }))
}

/// To the login, and from there to the page. Scripts are told that there is no session any more.
fn to_login(request: &Request, place: &str) -> Response {
    let headers = request.headers();
    let wants_page = request.method() == Method::GET && !request.uri().path().contains("/api/");
    if !wants_page {
        return Problem::auth("the session has ended, or its API key was revoked; sign in again")
            .into_response();
    }
    // A link on another site: the browser keeps the cookie back until a page of this server leads on.
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return frame::onward(place);
    }
    Redirect::to(&format!("/login?next={}", encoded(place))).into_response()
}
