//! Workers: what drives the runs of the workspace, and the queues of remote steps.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::parts::{Markup, age, when};
use super::query::query;
use super::words::capped;
use crate::api::{NodeKind, NodeList, NodeView, QueueList, QueueView};

/// An engine or a worker.
pub(super) struct WorkerRow {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) kind: &'static str,
    pub(super) serves: String,
    pub(super) lease: Option<Markup>,
    pub(super) lost: Option<Markup>,
    pub(super) runs: String,
    /// Address of the runs that it drives.
    pub(super) to: String,
    pub(super) stale: u64,
}

/// The rows of engines and workers.
pub(super) fn rows(visitor: &Visitor, list: &NodeList, now: i64) -> Vec<WorkerRow> {
    let row = |node: &NodeView| WorkerRow {
        name: match &node.host {
            Some(host) => format!("{} on {host}", node.name),
            None => node.name.clone(),
        },
        node: node.node.clone(),
        kind: match node.kind {
            NodeKind::Engine => "engine",
            NodeKind::Worker => "worker",
        },
        serves: node.serves.join(", "),
        lease: node.lease_until.as_deref().map(when),
        lost: node.lost_at.as_deref().map(|lost| age(lost, now)),
        runs: capped(node.runs),
        to: visitor.to(&format!("/runs{}", query([("node", node.node.as_str())]))),
        stale: node.stale,
    };
    list.nodes.iter().map(row).collect()
}

/// A queue of remote steps.
struct QueueRow {
    name: String,
    depth: String,
    oldest: Option<Markup>,
    in_hand: String,
    served_by: String,
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: PageFrame,
    rows: Vec<WorkerRow>,
    queues: Vec<QueueRow>,
}

/// `GET /w/{workspace}/workers`.
pub(super) async fn page(State(ui): State<Arc<Ui>>, visitor: Visitor) -> Result<Response, PageRefusal> {
    let list: NodeList = ui.get(&visitor, "/nodes").await?;
    let queues: QueueList = ui.get(&visitor, "/queues").await?;
    let now = ui.app.clock.now().0;
    let queue = |queue: &QueueView| QueueRow {
        name: queue.name.clone(),
        depth: capped(queue.depth),
        oldest: queue.oldest_at.as_deref().map(|oldest| age(oldest, now)),
        in_hand: capped(queue.in_hand),
        served_by: queue.served_by.join(", "),
    };
    let page = WorkersPage {
        frame: PageFrame::of(&ui, &visitor, Section::Workers, "Workers and queues"),
        rows: rows(&visitor, &list, now),
        queues: queues.queues.iter().map(queue).collect(),
    };
    Ok(frame::page(&page))
}
