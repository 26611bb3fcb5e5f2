//! Start a run by a form.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::desk::{Call, CallAnswer, PageRefusal};
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::query::{Fields, SentForm, encoded};
use super::run;
use crate::api::{Permission, StartAnswer, StartRun};

#[derive(Template)]
#[template(path = "start.html")]
struct StartFormPage {
    frame: PageFrame,
    definition: String,
    workflow: String,
    may_start: bool,
}

/// `GET /w/{workspace}/start`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let page = StartFormPage {
        frame: PageFrame::of(&ui, &visitor, Section::Runs, "Start a run"),
        definition: asked.get("definition").unwrap_or_default().to_owned(),
        workflow: asked.get("workflow").unwrap_or_default().to_owned(),
        may_start: visitor.may(Permission::Start),
    };
    Ok(frame::page(&page))
}

/// `POST /w/{workspace}/start`.
pub(super) async fn start(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    SentForm(form): SentForm,
) -> Result<Response, PageRefusal> {
    let key = form.get("key").unwrap_or_else(|| form.call());
    let body = StartRun {
        definition_id: form.get("definition").map(str::to_owned),
        workflow: form.get("workflow").map(str::to_owned),
        input: form.get("input").map(run::json).transpose()?,
        ..StartRun::default()
    };
    let call = Call::post("/workflow-runs".to_owned(), key, &body);
    let answered: CallAnswer<StartAnswer> = ui.send(&visitor, call).await?;
    let to = visitor.to(&format!("/runs/{}", encoded(&answered.value.run.id)));
    Ok(frame::back(&to, if answered.value.created { "started" } else { "attached" }))
}
