//! `/workflow-definitions`: what was pushed, which version is current, and the schema for editors.

mod outside;
mod push;

use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::{CallKey, PathOf, QueryOf, limit_of};
use super::describe::{Always, Changes, IdempotencyKey, OfRun};
use super::{Body, Problem};
use crate::access::Caller;
use crate::api::{
    ArchiveName, DefinitionDetail, DefinitionList, DefinitionSummary, NameChanged, Permission, UseVersion,
    value,
};
use crate::app::App;
use crate::definitions::catalog::{Changed, NameRecord};
use crate::definitions::editor;
use crate::definitions::graph::Graph;

/// Definitions on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of definitions on a page: each has a record with all of its versions.
const MAX_PAGE: usize = 200;
/// Maximum number of versions that are shown of a definition, the newest ones.
const SHOWN_VERSIONS: usize = 100;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .merge(push::router())
        .routes(routes!(list))
        .routes(routes!(get))
        .routes(routes!(graph))
        .routes(routes!(make_current))
        .routes(routes!(archive))
        .routes(routes!(schema))
}

/// The answer to a reference that leads to nothing.
pub(super) fn no_definition(reference: &str) -> Problem {
    Problem::no_definition(format!(
        "there is no definition {reference} in this workspace; GET /workflow-definitions lists all, and a workflow in code is started \
         with `workflow`"
    ))
}

/// Query of `GET /workflow-definitions`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListDefinitions {
    /// Whether archived names are listed too. They are not if absent.
    archived: Option<bool>,
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of definitions on the page; 50 if absent.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// List definitions
///
/// By name, each with its current version. Archived names are left out, so a page may be shorter than its limit.
#[utoipa::path(
    get,
    path = "/workflow-definitions",
    operation_id = "listDefinitions",
    tag = "definitions",
    params(ListDefinitions),
    responses((status = 200, description = "A page of definitions", body = DefinitionList), Always),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<ListDefinitions>,
) -> Result<Answer<DefinitionList>, Problem> {
    caller.may(Permission::Read)?;
    let limit = limit_of(asked.limit, PAGE, MAX_PAGE)?;
    let (names, more) = app.catalog.names(caller.workspace, asked.cursor.as_deref(), limit).await?;
    let next = names.last().filter(|_| more).map(|(name, _)| name.clone());
    let archived = asked.archived.unwrap_or(false);
    let shown = names.iter().filter(|(_, record)| archived || !record.archived);
    let definitions = shown.filter_map(|(name, record)| summary(name, record)).collect();
    Ok(Answer::ok(DefinitionList { definitions, next }))
}

fn summary(name: &str, record: &NameRecord) -> Option<DefinitionSummary> {
    Some(DefinitionSummary {
        name: name.to_owned(),
        current: record.current()?.into(),
        versions: record.versions.len(),
        archived: record.archived,
    })
}

/// Get a definition
///
/// By its id, `name@label`, or its name for the current version: the canonical document and the text as it was pushed.
#[utoipa::path(
    get,
    path = "/workflow-definitions/{id}",
    operation_id = "getDefinition",
    tag = "definitions",
    params(("id" = String, Path, description = "Id, `name@label` or name", example = "process-order@3")),
    responses((status = 200, description = "The definition", body = DefinitionDetail), Always, OfRun),
)]
async fn get(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(reference): PathOf<String>,
) -> Result<Answer<DefinitionDetail>, Problem> {
    caller.may(Permission::Read)?;
    let missing = || no_definition(&reference);
    let named = app.catalog.version(caller.workspace, &reference).await?.ok_or_else(missing)?;
    let stored = app.catalog.stored(caller.workspace, &named.version.id).await?.ok_or_else(missing)?;
    let versions = named.record.versions.iter().rev().take(SHOWN_VERSIONS).map(Into::into).collect();
    let document = value(&stored.document);
    Ok(Answer::ok(DefinitionDetail { named: (&named).into(), document, text: stored.text, versions }))
}

/// Get the graph of a definition
///
/// Its steps as nodes, and what follows what as edges. Paths are those of runs, with `*` for the keys of passes.
#[utoipa::path(
    get,
    path = "/workflow-definitions/{id}/graph",
    operation_id = "getDefinitionGraph",
    tag = "definitions",
    params(("id" = String, Path, description = "Id, `name@label` or name", example = "process-order@3")),
    responses((status = 200, description = "Nodes and edges", body = Graph), Always, OfRun),
)]
async fn graph(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(reference): PathOf<String>,
) -> Result<Answer<Graph>, Problem> {
    caller.may(Permission::Read)?;
    let found = app.catalog.find(caller.workspace, &reference).await?;
    let found = found.ok_or_else(|| no_definition(&reference))?;
    Ok(Answer::ok(Graph::of(&found.definition)))
}

/// Choose the current version
///
/// New starts of the name get this version. Open runs keep theirs. An archived name is available again.
#[utoipa::path(
    post,
    path = "/workflow-definitions/{name}/use",
    operation_id = "useDefinition",
    tag = "definitions",
    params(("name" = String, Path, description = "Name of the definition", example = "process-order"), IdempotencyKey),
    request_body(content = UseVersion, example = json!({"version": "3"})),
    responses((status = 200, description = "The name with its current version", body = NameChanged), Always, OfRun, Changes),
)]
async fn make_current(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(name): PathOf<String>,
    // The version identifies the call already; the header is only validated.
    _: CallKey,
    Body(asked): Body<UseVersion>,
) -> Result<Answer<NameChanged>, Problem> {
    caller.may(Permission::Define)?;
    let changed = app.catalog.make_current(caller.workspace, &name, &asked.version).await?;
    changed.map(answer).ok_or_else(|| no_definition(&format!("{name}@{}", asked.version)))
}

/// Archive a definition
///
/// The name is hidden from lists and takes no new starts; open runs go on. `use` or a push makes it available again.
#[utoipa::path(
    post,
    path = "/workflow-definitions/{name}/archive",
    operation_id = "archiveDefinition",
    tag = "definitions",
    params(("name" = String, Path, description = "Name of the definition", example = "process-order"), IdempotencyKey),
    request_body(content = ArchiveName, example = json!({})),
    responses((status = 200, description = "The archived name", body = NameChanged), Always, OfRun, Changes),
)]
async fn archive(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(name): PathOf<String>,
    // The name identifies the call already; the header is only validated.
    _: CallKey,
    Body(ArchiveName {}): Body<ArchiveName>,
) -> Result<Answer<NameChanged>, Problem> {
    caller.may(Permission::Define)?;
    app.catalog.archive(caller.workspace, &name).await?.map(answer).ok_or_else(|| no_definition(&name))
}

fn answer(Changed { named, changed }: Changed) -> Answer<NameChanged> {
    Answer::ok(NameChanged { named: (&named).into(), changed }).replayed(!changed)
}

/// Get the JSON Schema of definitions
///
/// For editors: completion and checks while writing.
#[utoipa::path(
    get,
    path = "/definition.schema.json",
    operation_id = "definitionSchema",
    tag = "definitions",
    security(()),
    responses((status = 200, description = "JSON Schema 2020-12", body = Object, content_type = "application/schema+json")),
)]
async fn schema() -> impl IntoResponse {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| {
        let text = serde_json::to_vec(&editor::schema()).expect("a schema is plain data");
        Bytes::from(text)
    });
    ([(CONTENT_TYPE, "application/schema+json")], TEXT.clone())
}
