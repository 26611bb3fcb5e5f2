//! `GET /workflow-runs/{id}/ledger`: pages of entries.

use std::sync::Arc;

use axum::extract::State;
use semel::store::{LedgerPart, Part};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of};
use super::describe::{Always, OfRun};
use super::runs::run_id;
use super::view::entry_view;
use crate::access::Caller;
use crate::api::{LedgerView, Permission};
use crate::app::App;

/// Entries on a page if no limit is given.
const PAGE: usize = 200;
/// Maximum number of entries on a page.
const MAX_PAGE: usize = 1_000;
/// Maximum bytes of a page, not counting its last commit: values may have 2 MiB each.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(ledger))
}

/// Query of `GET /workflow-runs/{id}/ledger`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LedgerPage {
    /// Number of the first entry; 1 if absent.
    #[param(minimum = 1)]
    from: Option<u64>,
    /// Maximum number of entries on the page; 200 if absent. A page of long entries has fewer.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Read a ledger
///
/// The numbered entries of a run: everything that happened, in order.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/ledger",
    operation_id = "readLedger",
    tag = "runs",
    params(super::describe::RunParam, LedgerPage),
    responses((status = 200, description = "A page of entries", body = LedgerView), Always, OfRun),
)]
async fn ledger(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<LedgerPage>,
) -> Result<Answer<LedgerView>, Problem> {
    caller.may(Permission::Read)?;
    let (run, limit) = (run_id(&id)?, limit_of(asked.limit, PAGE, MAX_PAGE)?);
    let from = asked.from.unwrap_or(1);
    if from == 0 || i64::try_from(from).is_err() {
        return Err(Problem::validation("`from` is the number of an entry; the first is 1"));
    }
    let part = Part { workspace: caller.workspace, run, from, limit, bytes: MAX_PAGE_BYTES };
    let LedgerPart { entries, next } = app.store.ledger_part(part).await?;
    let entries = entries.iter().map(entry_view).collect();
    Ok(Answer::ok(LedgerView { run: run.to_string(), entries, next }))
}
