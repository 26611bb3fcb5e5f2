//! `POST /session`, `GET /session`, `DELETE /session`: a person signs in to the console, and out again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::describe::{Always, Oversize};
use super::{Body, Problem};
use crate::access::sessions::{self, UserSession};
use crate::access::site::Site;
use crate::api::{CreateSession, MembershipView, SessionView, time};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create, show, end))
}

/// Sign in
///
/// Begins a session of the console with an API key and the name of a person, which ledgers show. The answer sets the cookie
/// `__Host-semel`, which a browser keeps over HTTPS only. With the cookie of a valid session, the workspace of the key is added to
/// its workspaces. A session ends after 12 hours without use, after 7 days, and for a workspace when its key is revoked.
#[utoipa::path(
    post,
    path = "/session",
    operation_id = "createSession",
    tag = "access",
    security(()),
    request_body(content = CreateSession, example = json!({"apiKey": "semel_…", "name": "Ada"})),
    responses(
        (status = 201, description = "The session", body = SessionView, headers(
            ("Set-Cookie" = String, description = "The cookie of the session"),
        )),
        Always,
        Oversize,
    ),
)]
async fn create(
    State(app): State<Arc<App>>,
    uri: Uri,
    headers: HeaderMap,
    Body(asked): Body<CreateSession>,
) -> Result<Response, Problem> {
    Site::of(&uri, &headers).must_not_be_foreign()?;
    let (session, cookie) = sessions::open(&app, &headers, (&asked.api_key, &asked.name)).await?;
    let mut response = Answer::ok(view(&app, &session).await?).created(true).into_response();
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Show the session
///
/// The person and the workspaces of the session whose cookie the request has.
#[utoipa::path(
    get,
    path = "/session",
    operation_id = "getSession",
    tag = "access",
    security(()),
    responses((status = 200, description = "The session", body = SessionView), Always),
)]
async fn show(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Answer<SessionView>, Problem> {
    let session = sessions::find(&app, &headers).await?;
    let session = session.ok_or_else(|| {
        Problem::auth("there is no session: sign in at /login, or by POST /api/v1/session with an API key")
    })?;
    Ok(Answer::ok(view(&app, &session).await?))
}

/// Sign out
///
/// Ends the session whose cookie the request has, for all of its workspaces. Without a session nothing changes.
#[utoipa::path(
    delete,
    path = "/session",
    operation_id = "endSession",
    tag = "access",
    security(()),
    responses((status = 204, description = "There is no session any more"), Always),
)]
async fn end(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    Site::of(&uri, &headers).must_not_be_foreign()?;
    let cookie = sessions::close(&app, &headers).await?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// The session with those of its workspaces whose keys are valid.
async fn view(app: &App, session: &UserSession) -> Result<SessionView, Problem> {
    let mut workspaces = Vec::new();
    for member in &session.memberships {
        let caller = sessions::caller(app, session, &member.workspace).await?;
        workspaces.extend(caller.map(|caller| MembershipView {
            workspace: member.workspace.clone(),
            key: member.key.to_string(),
            permissions: caller.permissions,
        }));
    }
    Ok(SessionView { name: session.name.clone(), workspaces, expires_at: time(session.expires_at()) })
}
