//! `GET /workflow-runs/{id}/inbox`: what has arrived for a run and is not consumed.

use std::sync::Arc;

use axum::extract::State;
use semel::store::{Arrival, Part};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::answer::Answer;
use super::asked::{PathOf, QueryOf, limit_of};
use super::describe::{Always, OfRun};
use super::runs::run_id;
use crate::access::Caller;
use crate::api::{InboxView, MessageView, Permission, time};
use crate::app::App;

/// Messages on a page if no limit is given.
const PAGE: usize = 50;
/// Maximum number of messages on a page.
const MAX_PAGE: usize = 200;
/// Maximum bytes of a page, not counting its last message: payloads may have 2 MiB each.
const MAX_PAGE_BYTES: usize = 8 * 1024 * 1024;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(inbox))
}

/// Query of `GET /workflow-runs/{id}/inbox`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InboxPage {
    /// Number of the first message; 1 if absent.
    #[param(minimum = 1)]
    pub(crate) from: Option<u64>,
    /// Maximum number of messages on the page; 50 if absent. A page of long messages has fewer.
    #[param(minimum = 1, maximum = 200)]
    pub(crate) limit: Option<usize>,
}

/// Read an inbox
///
/// The messages that a run has not consumed, in the order of their arrival: deliveries, ends of children, requests to end.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/inbox",
    operation_id = "readInbox",
    tag = "runs",
    params(super::describe::RunParam, InboxPage),
    responses((status = 200, description = "A page of messages", body = InboxView), Always, OfRun),
)]
async fn inbox(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<InboxPage>,
) -> Result<Answer<InboxView>, Problem> {
    page(&app, &caller, &id, asked).await.map(Answer::ok)
}

/// A page of a run's inbox, as its caller may see it.
pub(crate) async fn page(
    app: &App,
    caller: &Caller,
    run: &str,
    asked: InboxPage,
) -> Result<InboxView, Problem> {
    caller.may(Permission::Read)?;
    let (run, limit) = (run_id(run)?, limit_of(asked.limit, PAGE, MAX_PAGE)?);
    let from = asked.from.unwrap_or(1);
    if from == 0 || i64::try_from(from).is_err() {
        return Err(Problem::validation("`from` is the number of a message; the first is 1"));
    }
    // One more than is shown tells whether there is a next page.
    let part = Part { workspace: caller.workspace, run, from, limit: limit + 1, bytes: MAX_PAGE_BYTES };
    let mut arrivals = app.store.inbox_part(part).await?;
    let more = arrivals.len() > limit;
    arrivals.truncate(limit);
    let messages: Vec<_> = arrivals.iter().map(view).collect();
    // A page that is full by its bytes may have a next one, too.
    let full = messages.iter().map(|message| message.message.get().len()).sum::<usize>() >= MAX_PAGE_BYTES;
    let next = messages.last().filter(|_| more || full).map(|last| last.number + 1);
    Ok(InboxView { run: run.to_string(), messages, next })
}

fn view(arrival: &Arrival) -> MessageView {
    MessageView {
        number: arrival.number,
        at: time(arrival.at),
        message: serde_json::value::to_raw_value(&arrival.message)
            .expect("messages are plain data with text keys"),
    }
}
