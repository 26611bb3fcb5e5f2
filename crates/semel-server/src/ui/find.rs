//! Find: what a pasted text is. A run id leads to its run, a key to its page, a token to its hook.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use semel::id::RunId;

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::query::{Fields, encoded};
use crate::api::{HookView, KeyView, RunView};

#[derive(Template)]
#[template(path = "find.html")]
struct FindPage {
    frame: PageFrame,
    asked: String,
    keys: String,
    runs: String,
}

/// `GET /w/{workspace}/find?q=`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let Some(text) = asked.get("q") else { return Ok(Redirect::to(&visitor.to("/runs")).into_response()) };
    if let Some(path) = place(&ui, &visitor, text).await? {
        return Ok(Redirect::to(&visitor.to(&path)).into_response());
    }
    let page = FindPage {
        frame: PageFrame::of(&ui, &visitor, Section::None, "Find"),
        keys: visitor.to(&format!("/keys/{}", encoded(text))),
        runs: visitor.to(&format!("/runs?workflow={}", encoded(text))),
        asked: text.to_owned(),
    };
    Ok(frame::page(&page))
}

/// The page of what the text names exactly.
async fn place(ui: &Ui, visitor: &Visitor, text: &str) -> Result<Option<String>, PageRefusal> {
    let text_encoded = encoded(text);
    if text.parse::<RunId>().is_ok() {
        let found: Option<RunView> =
            ui.look(visitor, &format!("/workflow-runs/{text_encoded}?steps=none")).await?;
        return Ok(found.map(|_| format!("/runs/{text_encoded}")));
    }
    let key: Option<KeyView> = ui.look(visitor, &format!("/keys/{text_encoded}")).await?;
    if key.is_some() {
        return Ok(Some(format!("/keys/{text_encoded}")));
    }
    let hook: Option<HookView> = ui.look(visitor, &format!("/hooks/{text_encoded}")).await?;
    Ok(hook.map(|_| format!("/hooks?token={text_encoded}")))
}
