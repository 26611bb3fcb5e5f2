//! In doubt: runs that are paused until a person decides or looks.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::desk::Refused;
use super::frame::{self, Frame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, in_doubt, mark};
use super::query::{Fields, encoded, query};
use super::runs::doing;
use crate::api::{RunList, RunView};

/// Paused runs on a page.
const PAGE: &str = "50";

/// A run that is paused.
pub(super) struct PausedRow {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) to: String,
    pub(super) mark: Markup,
    pub(super) workflow: String,
    pub(super) reason: String,
    pub(super) age: Markup,
    /// What a person does about it.
    pub(super) verb: &'static str,
}

/// The row of a paused run.
pub(super) fn row(visitor: &Visitor, run: &RunView, now: i64) -> PausedRow {
    PausedRow {
        id: run.id.clone(),
        key: run.key.clone(),
        to: visitor.to(&format!("/runs/{}", encoded(&run.id))),
        mark: mark(run),
        workflow: run.workflow.clone(),
        reason: doing(run),
        age: age(&run.created_at, now),
        verb: if in_doubt(run) { "Decide" } else { "Look" },
    }
}

#[derive(Template)]
#[template(path = "doubts.html")]
struct DoubtsPage {
    frame: Frame,
    paused: Vec<PausedRow>,
    older: Option<String>,
}

/// `GET /w/{workspace}/doubts`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, Refused> {
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let path = query([("status", "PAUSED"), ("limit", PAGE)].into_iter().chain(cursor));
    let list: RunList = ui.get(&visitor, &format!("/workflow-runs{path}")).await?;
    let now = ui.app.clock.now().0;
    let mut paused: Vec<_> = list.runs.iter().collect();
    // Effects in doubt come before runs that only stand still.
    paused.sort_by_key(|run| !in_doubt(run));
    let page = DoubtsPage {
        frame: Frame::of(&ui, &visitor, Section::Doubts, "In doubt"),
        paused: paused.into_iter().map(|run| row(&visitor, run, now)).collect(),
        older: list.next.map(|next| visitor.to(&format!("/doubts{}", query([("cursor", next.as_str())])))),
    };
    Ok(frame::page(&page))
}
