//! `GET /audit`: administrative calls in a workspace.

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::api_keys::workspace_of;
use super::asked::{QueryOf, limit_of};
use super::describe::{Always, OfRun};
use crate::access::Caller;
use crate::access::audit::{self, Act};
use crate::api::{AuditList, AuditView, time};
use crate::app::App;

/// Calls on a page if no limit is given.
const USUAL: usize = 50;
/// Maximum number of calls on a page.
const MOST: usize = 500;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Query of `GET /audit`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichCalls {
    /// The `next` of the previous page. Absent for the first page.
    cursor: Option<String>,
    /// Maximum number of calls on the page; 50 if absent.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Name or id of the workspace. Only the root token may choose one.
    workspace: Option<String>,
}

/// Read the audit
///
/// Administrative calls of the last 90 days, newest first.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "audit",
    tag = "access",
    params(WhichCalls),
    responses((status = 200, description = "A page of calls", body = AuditList), Always, OfRun),
)]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    QueryOf(asked): QueryOf<WhichCalls>,
) -> Result<Answer<AuditList>, Problem> {
    caller.may_manage_keys()?;
    let limit = limit_of(asked.limit, USUAL, MOST)?;
    let workspace = workspace_of(&app, &caller, asked.workspace.as_deref()).await?.id;
    let (acts, next) = audit::page(&app, workspace, asked.cursor.as_deref(), limit).await?;
    Ok(Answer::ok(AuditList { calls: acts.into_iter().map(view).collect(), next }))
}

fn view(act: Act) -> AuditView {
    let Act { at, by, call, subject, status } = act;
    AuditView { at: time(at), by, call, subject, status }
}
