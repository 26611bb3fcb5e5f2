//! `/`, `/login` and `/logout`: into a workspace, and out.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::gate::LOCAL;
use super::query::{Fields, SentForm, encoded};
use super::{Ui, frame};
use crate::access::sessions;
use crate::http::Problem;

/// `GET /`: the last workspace, or the login.
pub(super) async fn home(State(ui): State<Arc<Ui>>, headers: HeaderMap) -> Result<Response, Problem> {
    if ui.app.access.anyone().is_some() {
        return Ok(Redirect::to(&format!("/w/{LOCAL}/")).into_response());
    }
    let session = sessions::find(&ui.app, &headers).await?;
    let last = session.as_ref().and_then(|session| session.memberships.first());
    Ok(match last {
        Some(member) => Redirect::to(&format!("/w/{}/", encoded(&member.workspace))).into_response(),
        None if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") => frame::onward("/"),
        None => Redirect::to("/login").into_response(),
    })
}

/// The form of the login.
#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    next: String,
    name: String,
    refused: String,
}

/// `GET /login`.
pub(super) async fn page(State(ui): State<Arc<Ui>>, asked: Fields) -> Response {
    if ui.app.access.anyone().is_some() {
        return Redirect::to("/").into_response();
    }
    let next = asked.get("next").unwrap_or_default().to_owned();
    frame::page(&LoginPage { next, name: String::new(), refused: String::new() })
}

/// `POST /login`.
pub(super) async fn sign_in(
    State(ui): State<Arc<Ui>>,
    headers: HeaderMap,
    SentForm(form): SentForm,
) -> Response {
    let text = |name: &str| form.get(name).unwrap_or_default().to_owned();
    let (key, name, next) = (text("apiKey"), text("name"), text("next"));
    match sessions::open(&ui.app, &headers, (&key, &name)).await {
        Ok((session, cookie)) => {
            let first =
                session.memberships.first().map(|member| format!("/w/{}/", encoded(&member.workspace)));
            let to = Some(next).filter(|next| is_own(next)).or(first).unwrap_or_else(|| "/".to_owned());
            ([(header::SET_COOKIE, cookie)], Redirect::to(&to)).into_response()
        }
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status()).unwrap_or(StatusCode::UNAUTHORIZED);
            frame::shown(status, &LoginPage { next, name, refused: problem.view().detail })
        }
    }
}

/// `POST /logout`.
pub(super) async fn sign_out(State(ui): State<Arc<Ui>>, headers: HeaderMap) -> Result<Response, Problem> {
    let cookie = sessions::close(&ui.app, &headers).await?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}

/// Whether a place is a page of this server: a login must not lead to another one.
fn is_own(place: &str) -> bool {
    place.starts_with("/w/")
        && !place.contains(['\\', '\n', '\r', '\t'])
        && place.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_this_server_only() {
        assert!(is_own("/w/shop/runs/run_1?tab=ledger"));
        for foreign in [
            "",
            "/",
            "//evil.example",
            "https://evil.example",
            "/\\evil.example",
            "/w/\r\nset-cookie: x",
            "/w/ä",
        ] {
            assert!(!is_own(foreign), "{foreign:?}");
        }
    }
}
