//! In doubt: runs that are paused until a person decides or looks.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, icon, in_doubt, mark};
use super::query::{Fields, encoded, query};
use super::runs::doing;
use super::timeline::step_icon;
use crate::api::{DoubtList, DoubtView, RunList, RunView};

/// Runs of each list on a page.
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

/// A step in doubt.
pub(super) struct DoubtRow {
    pub(super) path: String,
    pub(super) icon: Markup,
    pub(super) key: String,
    pub(super) workflow: String,
    pub(super) reason: String,
    pub(super) effect_key: String,
    pub(super) age: Markup,
    pub(super) to: String,
}

/// The row of a step in doubt.
pub(super) fn doubt_row(visitor: &Visitor, doubt: &DoubtView, now: i64) -> DoubtRow {
    DoubtRow {
        path: doubt.path.clone(),
        icon: icon(step_icon(doubt.class)),
        key: doubt.key.clone(),
        workflow: doubt.workflow.clone(),
        reason: doubt.reason.clone(),
        effect_key: doubt.effect_key.clone(),
        age: age(&doubt.since, now),
        to: visitor.to(&format!("/runs/{}", encoded(&doubt.run))),
    }
}

#[derive(Template)]
#[template(path = "doubts.html")]
struct DoubtsPage {
    frame: PageFrame,
    doubts: Vec<DoubtRow>,
    more: Option<String>,
    paused: Vec<PausedRow>,
    older: Option<String>,
}

/// `GET /w/{workspace}/doubts`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let cursor = |name| asked.get(name).map(|cursor| ("cursor", cursor));
    let path = query([("limit", PAGE)].into_iter().chain(cursor("cursor")));
    let open: DoubtList = ui.get(&visitor, &format!("/doubts{path}")).await?;
    let path = query([("status", "PAUSED"), ("limit", PAGE)].into_iter().chain(cursor("paused")));
    let list: RunList = ui.get(&visitor, &format!("/workflow-runs{path}")).await?;
    let now = ui.app.clock.now().0;
    let next = |name, next: Option<String>| {
        next.map(|next| visitor.to(&format!("/doubts{}", query([(name, next.as_str())]))))
    };
    let page = DoubtsPage {
        frame: PageFrame::of(&ui, &visitor, Section::Doubts, "In doubt"),
        doubts: open.doubts.iter().map(|doubt| doubt_row(&visitor, doubt, now)).collect(),
        more: next("cursor", open.next),
        // Runs with a step in doubt are in the first list.
        paused: list.runs.iter().filter(|run| !in_doubt(run)).map(|run| row(&visitor, run, now)).collect(),
        older: next("paused", list.next),
    };
    Ok(frame::page(&page))
}
