//! Workflows: the definitions of the workspace, each with its graph.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;

use super::Ui;
use super::desk::PageRefusal;
use super::frame::{self, PageFrame, Section};
use super::gate::Visitor;
use super::graph::{GraphDrawing, draw};
use super::parts::{Markup, when};
use super::query::{Fields, encoded, query};
use super::words::capped;
use crate::api::{DefinitionDetail, DefinitionList, DefinitionVersion, WorkflowList, WorkflowView};
use crate::definitions::graph::Graph;

/// A definition.
struct WorkflowRow {
    name: String,
    to: String,
    runs: String,
    version: String,
    by: String,
    at: Markup,
    versions: usize,
}

/// A workflow version that is served, or has open runs.
struct ServedRow {
    name: String,
    version: String,
    served_by: String,
    open: String,
    due: String,
    runs: String,
}

fn served(visitor: &Visitor, one: &WorkflowView) -> ServedRow {
    let filter = [("workflow", one.name.as_str()), ("workflowVersion", one.version.as_str())];
    ServedRow {
        runs: visitor.to(&format!("/runs{}", query(filter))),
        name: one.name.clone(),
        version: one.version.clone(),
        served_by: one.served_by.join(", "),
        open: capped(one.open),
        due: capped(one.due),
    }
}

#[derive(Template)]
#[template(path = "workflows.html")]
struct WorkflowsPage {
    frame: PageFrame,
    served: Vec<ServedRow>,
    rows: Vec<WorkflowRow>,
    more: Option<String>,
}

/// `GET /w/{workspace}/workflows`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, PageRefusal> {
    let cursor = asked.get("cursor").map(|cursor| ("cursor", cursor));
    let list: DefinitionList = ui.get(&visitor, &format!("/workflow-definitions{}", query(cursor))).await?;
    let row = |one: &crate::api::DefinitionSummary| WorkflowRow {
        to: visitor.to(&format!("/workflows/{}", encoded(&one.name))),
        runs: visitor.to(&format!("/runs{}", query([("workflow", one.name.as_str())]))),
        name: one.name.clone(),
        version: one.current.version.clone(),
        by: one.current.pushed_by.clone(),
        at: when(&one.current.pushed_at),
        versions: one.versions,
    };
    let workflows: WorkflowList = ui.get(&visitor, "/workflows").await?;
    let page = WorkflowsPage {
        served: workflows.workflows.iter().map(|one| served(&visitor, one)).collect(),
        frame: PageFrame::of(&ui, &visitor, Section::Workflows, "Workflows"),
        rows: list.definitions.iter().map(row).collect(),
        more: list.next.map(|next| visitor.to(&format!("/workflows{}", query([("cursor", next.as_str())])))),
    };
    Ok(frame::page(&page))
}

/// A version of a definition.
struct VersionRow {
    label: String,
    by: String,
    at: Markup,
}

impl From<&DefinitionVersion> for VersionRow {
    fn from(version: &DefinitionVersion) -> Self {
        Self { label: version.version.clone(), by: version.pushed_by.clone(), at: when(&version.pushed_at) }
    }
}

#[derive(Template)]
#[template(path = "workflow.html")]
struct WorkflowPage {
    frame: PageFrame,
    name: String,
    label: String,
    id: String,
    current: bool,
    archived: bool,
    drawn: GraphDrawing,
    text: String,
    versions: Vec<VersionRow>,
}

/// `GET /w/{workspace}/workflows/{name}`.
pub(super) async fn definition(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, name)): Path<(String, String)>,
) -> Result<Response, PageRefusal> {
    let path = format!("/workflow-definitions/{}", encoded(&name));
    let found: DefinitionDetail = ui.get(&visitor, &path).await?;
    let graph: Graph = ui.get(&visitor, &format!("{path}/graph")).await?;
    let page = WorkflowPage {
        frame: PageFrame::of(&ui, &visitor, Section::Workflows, &found.named.name),
        name: found.named.name,
        label: found.named.version.version,
        id: found.named.version.id,
        current: found.named.current,
        archived: found.named.archived,
        drawn: draw(&graph),
        text: found.text,
        versions: found.versions.iter().map(Into::into).collect(),
    };
    Ok(frame::page(&page))
}
