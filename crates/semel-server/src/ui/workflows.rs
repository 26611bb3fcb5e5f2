//! Workflows: the definitions of the workspace, each with its graph.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Response;

use super::Ui;
use super::desk::Refused;
use super::frame::{self, Frame, Section};
use super::gate::Visitor;
use super::graph::{Drawn, draw};
use super::parts::{Markup, when};
use super::query::{Fields, encoded, query};
use crate::api::{DefinitionDetail, DefinitionList, DefinitionVersion};
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

#[derive(Template)]
#[template(path = "workflows.html")]
struct WorkflowsPage {
    frame: Frame,
    rows: Vec<WorkflowRow>,
    more: Option<String>,
}

/// `GET /w/{workspace}/workflows`.
pub(super) async fn page(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    asked: Fields,
) -> Result<Response, Refused> {
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
    let page = WorkflowsPage {
        frame: Frame::of(&ui, &visitor, Section::Workflows, "Workflows"),
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
    frame: Frame,
    name: String,
    label: String,
    id: String,
    current: bool,
    archived: bool,
    drawn: Drawn,
    text: String,
    versions: Vec<VersionRow>,
}

/// `GET /w/{workspace}/workflows/{name}`.
pub(super) async fn definition(
    State(ui): State<Arc<Ui>>,
    visitor: Visitor,
    Path((_, name)): Path<(String, String)>,
) -> Result<Response, Refused> {
    let path = format!("/workflow-definitions/{}", encoded(&name));
    let found: DefinitionDetail = ui.get(&visitor, &path).await?;
    let graph: Graph = ui.get(&visitor, &format!("{path}/graph")).await?;
    let page = WorkflowPage {
        frame: Frame::of(&ui, &visitor, Section::Workflows, &found.named.name),
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
