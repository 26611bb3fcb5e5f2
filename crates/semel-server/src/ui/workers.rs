//! Workers: what drives the runs of the workspace.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::desk::Refused;
use super::frame::{self, Frame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, when};
use super::query::{Fields, query};
use crate::api::WorkerList;

/// A worker, or an engine that opens the store itself.
pub(super) struct WorkerRow {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) kind: &'static str,
    pub(super) serves: String,
    pub(super) seen: Markup,
}

/// The rows of workers and engines.
pub(super) fn rows(list: &WorkerList, now: i64) -> Vec<WorkerRow> {
    let engines = list.engines.iter().map(|engine| WorkerRow {
        name: format!("{} {} {}", engine.name, engine.host, engine.pid),
        node: engine.node.clone(),
        kind: "engine",
        serves: engine.serves.join(", "),
        seen: when(&engine.since),
    });
    let workers = list.workers.iter().map(|worker| WorkerRow {
        name: worker.name.clone(),
        node: worker.node.clone(),
        kind: "worker",
        serves: worker.serves.join(", "),
        seen: age(&worker.seen_at, now),
    });
    engines.chain(workers).collect()
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    rows: Vec<WorkerRow>,
    more: Option<String>,
}

/// `GET /w/{workspace}/workers`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, Refused> {
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let list: WorkerList = ui.get(&visitor, &format!("/workers{}", query(cursor))).await?;
    let page = WorkersPage {
        frame: Frame::of(&ui, &visitor, Section::Workers, "Workers"),
        rows: rows(&list, ui.app.clock.now().0),
        more: list.next.map(|next| visitor.to(&format!("/workers{}", query([("cursor", next.as_str())])))),
    };
    Ok(frame::page(&page))
}
