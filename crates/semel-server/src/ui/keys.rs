//! Keys: which run holds a key, what came under it, and what the next start gets.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};

use super::Ui;
use super::desk::{Answered, Call, Refused};
use super::frame::{self, Frame, Section};
use super::gate::Visitor;
use super::parts::{Markup, mark, when};
use super::query::{Fields, Sent, encoded};
use crate::api::{ControlAnswer, ControlRun, KeyView, Permission, RunView};

#[derive(Template)]
#[template(path = "keys.html")]
struct SearchPage {
    frame: Frame,
    key: String,
    scope: String,
}

/// `GET /w/{workspace}/keys`: the search, which leads to the page of a key.
pub(super) async fn search(State(ui): State<Arc<Ui>>, visitor: Visitor, asked: Fields) -> Response {
    let scope = asked.get("scope").unwrap_or("*");
    if let Some(key) = asked.get("key") {
        let to = format!("/keys/{}?scope={}", encoded(key), encoded(scope));
        return Redirect::to(&visitor.to(&to)).into_response();
    }
    let frame = Frame::of(&ui, &visitor, Section::Keys, "Keys");
    frame::page(&SearchPage { frame, key: String::new(), scope: scope.to_owned() })
}

/// Absorbed calls of one kind.
struct Absorbed {
    call: String,
    count: u64,
    first: Markup,
    last: Markup,
    recent: Vec<(Markup, String)>,
}

#[derive(Template)]
#[template(path = "key.html")]
struct KeyPage {
    frame: Frame,
    here: String,
    key: String,
    scope: String,
    run: Option<RunView>,
    mark: Markup,
    absorbed: Vec<Absorbed>,
    may_operate: bool,
}

/// `GET /w/{workspace}/keys/{key}`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, key)): Path<(String, String)>,
    asked: Fields,
) -> Result<Response, Refused> {
    let scope = asked.get("scope").unwrap_or("*").to_owned();
    let path = format!("/keys/{}?scope={}", encoded(&key), encoded(&scope));
    let found: Option<KeyView> = match ui.get(&visitor, &path).await {
        Ok(found) => Some(found),
        Err(Refused(problem)) if problem.status == 404 => None,
        Err(refused) => return Err(refused),
    };
    let kinds = found.as_ref().map(|found| found.duplicates.as_slice()).unwrap_or_default();
    let absorbed = |kind: &crate::api::DuplicatesView| Absorbed {
        call: format!("{:?}", kind.kind),
        count: kind.count,
        first: when(&kind.first_at),
        last: when(&kind.last_at),
        recent: kind.recent.iter().rev().map(|one| (when(&one.at), one.detail.clone())).collect(),
    };
    let page = KeyPage {
        frame: Frame::of(&ui, &visitor, Section::Keys, &format!("Key {key}")),
        here: visitor.to(&format!("/keys/{}", encoded(&key))),
        absorbed: kinds.iter().map(absorbed).collect(),
        mark: found.as_ref().map(|found| mark(&found.run)).unwrap_or_default(),
        run: found.map(|found| found.run),
        may_operate: visitor.may(Permission::Operate),
        key,
        scope,
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/keys/{key}/release`.
pub(super) async fn release(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, key)): Path<(String, String)>,
    Sent(form): Sent,
) -> Result<Response, Refused> {
    let scope = form.get("scope").unwrap_or("*");
    let path = format!("/keys/{}/release?scope={}", encoded(&key), encoded(scope));
    // The key is released whatever its run does meanwhile, so no version is expected.
    let call = Call::post(path, form.call(), &ControlRun { expected_version: None });
    let answered: Answered<ControlAnswer> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run.id)));
    Ok(frame::back(&to, if answered.replayed { "again" } else { "yes" }))
}
