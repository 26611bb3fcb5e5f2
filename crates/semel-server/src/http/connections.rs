//! `GET /connections`: what definitions of the workspace may call.

use std::sync::Arc;

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::describe::Always;
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;
use crate::connections::ConnectionList;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// List connections
///
/// The systems that definitions of this workspace may call, by name, with what each can do about a repeated request. Addresses and
/// credentials are the operator's and are not shown.
#[utoipa::path(
    get,
    path = "/connections",
    operation_id = "listConnections",
    tag = "definitions",
    responses((status = 200, description = "The connections of the workspace, by name", body = ConnectionList), Always),
)]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Result<Answer<ConnectionList>, Problem> {
    caller.may(Permission::Define)?;
    let open = match &app.connections {
        Some(connections) => connections.names(caller.workspace).await?,
        None => Vec::new(),
    };
    let connections = open.iter().map(|connection| connection.view()).collect();
    Ok(Answer::ok(ConnectionList { connections }))
}
