//! `GET /workflow-runs/{id}/events`: a run's entries as they are written, as server-sent events.
//!
//! The id of an event is the entry's number, so that a reader that was cut off goes on where it was: numbers have no gaps
//! and none comes twice. The stream ends after the entry that ends the run.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use semel::id::{RunId, WorkspaceId};
use semel::store::{Numbered, Watch};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::asked::{Asked, At, single};
use super::describe::{Always, OfRun};
use super::runs::run_id;
use super::view::entry_view;
use super::wait::{LOOK, found};
use crate::access::Caller;
use crate::api::Permission;
use crate::app::App;

/// How often a silent stream says that it lives: more often than proxies cut silent connections.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Where to begin.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsAfter {
    /// The number of the last entry that is known; the header `Last-Event-ID` goes before it.
    after: Option<u64>,
}

/// Follow a run
///
/// Its entries as server-sent events, from the first one or after `Last-Event-ID`; the data is what the ledger shows.
/// The stream ends with the run.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/events",
    operation_id = "followRun",
    tag = "runs",
    params(
        super::describe::RunParam,
        EventsAfter,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was received"),
    ),
    responses(
        (status = 200, description = "Entries, each with its number as id", content_type = "text/event-stream", body = Object),
        Always,
        OfRun,
    ),
)]
async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    At(id): At<String>,
    Asked(asked): Asked<EventsAfter>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Permission::Read)?;
    let run = run_id(&id)?;
    let last = match single(&headers, "last-event-id")? {
        None => asked.after.unwrap_or(0),
        Some(text) => text.parse().map_err(|_| {
            Problem::validation("the header Last-Event-ID is the id of an event: the number of an entry")
        })?,
    };
    // An unknown run is a problem, not an empty stream.
    found(&app, caller.workspace, run).await?;
    let watch = app.store.watch(run);
    let reader =
        Reader { app, workspace: caller.workspace, run, last, ready: VecDeque::new(), ended: false, watch };
    let stream = unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(Box::pin(stream)).keep_alive(keep_alive).into_response())
}

/// Somebody who follows a run.
struct Reader {
    app: Arc<App>,
    workspace: WorkspaceId,
    run: RunId,
    /// The number of the last entry that was read.
    last: u64,
    ready: VecDeque<Numbered>,
    /// Whether nothing follows what is ready.
    ended: bool,
    watch: Watch,
}

impl Reader {
    /// The next entry; none after the run's end, and none if the store cannot answer or the server stops: the reader
    /// comes back then.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(event(&line));
            }
            if self.ended {
                return None;
            }
            if let Err(problem) = self.look().await {
                tracing::debug!(run = %self.run, code = problem.code(), "a stream of events ends");
                return None;
            }
            if self.ready.is_empty() && !self.ended {
                let look = self.app.clock.now().after(LOOK);
                tokio::select! {
                    () = self.watch.changed() => {}
                    () = self.app.clock.until(look) => {}
                    () = self.app.stop.ordered() => return None,
                }
            }
        }
    }

    /// Reads what is new. The header first: with the ledger afterwards nothing of what it counts is missing.
    async fn look(&mut self) -> Result<(), Problem> {
        let (run, _) = found(&self.app, self.workspace, self.run).await?;
        if run.state.version > self.last {
            let lines = self.app.store.ledger(self.workspace, self.run, self.last + 1).await?;
            self.last = lines.last().map_or(self.last, |line| line.number);
            self.ready.extend(lines);
        }
        // What follows an end (a released key, a restart) is shown only if it is there already.
        self.ended = run.status().is_terminal() && (self.last >= run.state.version || run.purged);
        Ok(())
    }
}

fn event(line: &Numbered) -> Event {
    let data = serde_json::to_string(&entry_view(line)).expect("entries are plain data with text keys");
    // Between the tokens of a value that is kept as it came there may be line ends; in an event they mean something.
    let data = data.replace(['\r', '\n'], " ");
    Event::default().id(line.number.to_string()).data(data)
}
