//! `GET /nodes`: engines and remote workers, and those that were lost within the last day.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use semel::id::WorkspaceId;
use semel::rules::node::{EngineRecord, LostNode};
use semel::rules::path::Name;
use semel::rules::record::{Look, LookBy, Record};
use semel::store::NodeFacts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::describe::Always;
use super::{Problem, workers};
use crate::access::Caller;
use crate::api::{CappedView, NodeKind, NodeList, NodeView, Permission, time};
use crate::app::App;

/// Maximum number of nodes of each kind that are read.
const MOST: usize = 500;
/// Bound of the numbers of runs.
const CAP: usize = 10_000;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(nodes))
}

/// List nodes
///
/// Engines in servers and other programs, and remote workers: until when their leases last, what they serve and drive, and
/// how many of their commits came too late. Lost ones are listed for a day.
#[utoipa::path(
    get,
    path = "/nodes",
    operation_id = "listNodes",
    tag = "workers",
    responses((status = 200, description = "The nodes of the workspace", body = NodeList), Always),
)]
async fn nodes(State(app): State<Arc<App>>, caller: Caller) -> Result<Answer<NodeList>, Problem> {
    list(&app, &caller).await.map(Answer::ok)
}

/// The nodes of a workspace, as its caller may see them.
pub(crate) async fn list(app: &App, caller: &Caller) -> Result<NodeList, Problem> {
    caller.may(Permission::Read)?;
    let facts = app.store.nodes(caller.workspace, CAP).await?;
    let facts: HashMap<String, NodeFacts> =
        facts.into_iter().map(|facts| (facts.node.to_string(), facts)).collect();
    let mut nodes = present(app, caller.workspace).await?;
    nodes.extend(lost(app, caller.workspace).await?);
    for node in &mut nodes {
        if let Some(facts) = facts.get(&node.node) {
            (node.runs, node.stale) = (facts.runs.into(), facts.stale);
            node.lease_until = facts.lease.filter(|_| node.lost_at.is_none()).map(time);
        }
    }
    Ok(NodeList { nodes })
}

/// The engines and workers that serve a workspace now.
pub(super) async fn present(app: &App, workspace: WorkspaceId) -> Result<Vec<NodeView>, Problem> {
    let engines = workers::engines::present(app).await?;
    // Families are driven in all workspaces.
    let serves = |engine: &EngineRecord| engine.workspace == workspace || !engine.families.is_empty();
    let engines = engines.into_iter().filter(|(_, engine)| serves(engine));
    let mut nodes: Vec<_> = engines.map(|(record, engine)| engine_node(workspace, &record, engine)).collect();
    for record in records(app, workers::kind(workspace)).await? {
        let (name, serves) = workers::described(&record)?;
        nodes.push(NodeView { name, serves, ..bare(&record, NodeKind::Worker) });
    }
    Ok(nodes)
}

fn engine_node(workspace: WorkspaceId, record: &Record, engine: EngineRecord) -> NodeView {
    let EngineRecord { name, host, serves, families, .. } = engine;
    let mut serves = if engine.workspace == workspace { serves } else { Vec::new() };
    serves.extend(families.into_iter().map(|family| format!("*@{family}*")));
    let host = Some(host).filter(|host| !host.is_empty());
    NodeView { name, host, serves, ..bare(record, NodeKind::Engine) }
}

async fn lost(app: &App, workspace: WorkspaceId) -> Result<Vec<NodeView>, Problem> {
    let mut nodes = Vec::new();
    for record in records(app, LostNode::kind()).await? {
        // What a newer Semel has written may not be readable.
        let Ok(lost) = record.body.read::<LostNode>() else { continue };
        if lost.workspace == workspace {
            let kind = if lost.remote { NodeKind::Worker } else { NodeKind::Engine };
            let host = Some(lost.host).filter(|host| !host.is_empty());
            let lost_at = Some(time(lost.lost));
            nodes.push(NodeView {
                name: lost.name,
                host,
                serves: lost.serves,
                lost_at,
                ..bare(&record, kind)
            });
        }
    }
    Ok(nodes)
}

async fn records(app: &App, kind: Name) -> Result<Vec<Record>, Problem> {
    let by = LookBy::Page { after: None, limit: MOST, newest_first: true };
    Ok(app.store.records(Look { kind, by }).await?)
}

/// A node of which nothing is known but its record.
fn bare(record: &Record, kind: NodeKind) -> NodeView {
    NodeView {
        node: record.id.to_string(),
        kind,
        name: String::new(),
        host: None,
        serves: Vec::new(),
        lease_until: None,
        runs: CappedView::default(),
        stale: 0,
        lost_at: None,
    }
}
