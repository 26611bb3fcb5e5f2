//! `POST /workspaces` and `GET /workspaces`: for root only.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::asked::CallKey;
use super::describe::{Always, Changes, IdempotencyKey};
use super::{Body, Problem};
use crate::access::records::Workspace;
use crate::access::{Caller, Concerns, workspaces};
use crate::api::{CreateWorkspace, WorkspaceList, WorkspaceView, time};
use crate::app::App;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(create, list))
}

/// Create a workspace
///
/// Needs the root token. The name identifies it: a repeated call with the same settings gets the same workspace.
#[utoipa::path(
    post,
    path = "/workspaces",
    operation_id = "createWorkspace",
    tag = "access",
    params(IdempotencyKey),
    request_body(content = CreateWorkspace, example = json!({"name": "acme"})),
    responses(
        (status = 201, description = "The new workspace", body = WorkspaceView),
        (status = 200, description = "The existing workspace", body = WorkspaceView),
        Always,
        Changes,
    ),
)]
async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    // The name identifies the workspace already; the header is only validated.
    _: CallKey,
    Body(asked): Body<CreateWorkspace>,
) -> Result<Response, Problem> {
    caller.must_be_root()?;
    let (workspace, created) = workspaces::create(&app, asked).await?;
    let answer = Answer::ok(view(&workspace)).created(created).replayed(!created);
    let mut response = answer.into_response();
    response.extensions_mut().insert(Concerns(workspace.id));
    Ok(response)
}

/// List workspaces
///
/// Needs the root token.
#[utoipa::path(
    get,
    path = "/workspaces",
    operation_id = "listWorkspaces",
    tag = "access",
    responses((status = 200, description = "All workspaces, by name", body = WorkspaceList), Always),
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Answer<WorkspaceList>, Problem> {
    caller.must_be_root()?;
    let workspaces = workspaces::list(&app).await?.iter().map(view).collect();
    Ok(Answer::ok(WorkspaceList { workspaces }))
}

fn view(workspace: &Workspace) -> WorkspaceView {
    WorkspaceView {
        id: workspace.id.to_string(),
        name: workspace.name.clone(),
        rate_limit: workspace.rate_limit,
        created_at: time(workspace.created_at),
    }
}
