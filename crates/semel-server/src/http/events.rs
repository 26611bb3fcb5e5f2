//! `GET /workflow-runs/{id}/events`: a run's entries as they are written, as server-sent events.
//!
//! The id of an event is the entry's number, so that a reader that was cut off goes on where it was: numbers have no gaps
//! and none comes twice. The stream ends after the entry that ends the run. It also ends when its credential is revoked
//! or expires, and when the workspace has too much memory in events that are read from streams too slowly.

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
use semel::store::{Numbered, Part as LedgerPage, Watch};
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::asked::{PathOf, QueryOf, single};
use super::describe::{Always, OfRun};
use super::runs::run_id;
use super::view::entry_view;
use super::wait::{LOOK, found};
use crate::access::{Caller, Life, Part};
use crate::api::Permission;
use crate::app::App;

/// Interval of keep-alive comments: shorter than the timeouts of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum number of entries read at once for a stream.
const PAGE_ENTRIES: usize = 1_000;
/// Maximum bytes of entries read at once for a stream: the cost of a reader that disconnects.
const PAGE_BYTES: usize = 1024 * 1024;
/// How often a stream checks whether there is memory for its next event before it ends. The reader continues with the
/// id of the last event that it received.
const PATIENCE: u32 = 10;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Query of the event stream.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsAfter {
    /// Number of the last known entry. The header `Last-Event-ID` takes precedence.
    after: Option<u64>,
}

/// Follow a run
///
/// Streams the run's entries as server-sent events, from the first one or after `Last-Event-ID`; the data has the
/// form of the ledger. The stream ends with the run, and when the API key is revoked or expires. A stream that is not
/// read also ends when the workspace has too many events in memory: continue with `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/workflow-runs/{id}/events",
    operation_id = "followRun",
    tag = "runs",
    params(
        super::describe::RunParam,
        EventsAfter,
        ("Last-Event-ID" = Option<u64>, Header, description = "Id of the last event that was received; the stream continues after it"),
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
    PathOf(id): PathOf<String>,
    QueryOf(asked): QueryOf<EventsAfter>,
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
    let place = app.bounds.stream(caller.workspace)?;
    let reader = Reader {
        workspace: caller.workspace,
        run,
        last,
        ready: VecDeque::new(),
        ended: false,
        watch: app.store.watch(run),
        life: app.access.life(&app, &caller),
        room: app.bounds.events(caller.workspace),
        sent: 0,
        app,
        _place: place,
    };
    let stream = unfold(reader, async |mut reader| {
        let event = reader.next().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(Box::pin(stream)).keep_alive(keep_alive).into_response())
}

/// An entry that was read and not sent yet.
struct Ready {
    number: u64,
    data: String,
}

/// One open stream.
struct Reader {
    app: Arc<App>,
    workspace: WorkspaceId,
    run: RunId,
    /// Number of the last entry that was read.
    last: u64,
    ready: VecDeque<Ready>,
    /// Whether nothing follows the entries that are ready.
    ended: bool,
    watch: Watch,
    /// Validity of the credential: the stream ends with it.
    life: Life,
    /// The workspace's memory for events that are ready or being sent.
    room: Part,
    /// Bytes of the event that is being sent. The next one is requested when most of it is sent.
    sent: usize,
    _place: Part,
}

impl Reader {
    /// The next entry. `None` after the run's end, and if the store does not answer, the credential is refused, the
    /// workspace has no memory left for events, or the server stops: the reader reconnects then.
    async fn next(&mut self) -> Option<Event> {
        self.room.shrink(std::mem::take(&mut self.sent));
        let mut patience = PATIENCE;
        loop {
            if self.life.is_over() {
                return None;
            }
            if let Some(Ready { number, data }) = self.ready.pop_front() {
                self.sent = data.len();
                return Some(Event::default().id(number.to_string()).data(data));
            }
            if self.ended {
                return None;
            }
            let more = match self.look().await {
                Ok(more) => more,
                Err(problem) => {
                    tracing::debug!(run = %self.run, code = %problem.code(), "a stream of events ends");
                    return None;
                }
            };
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            // There is more, but other streams of the workspace hold the memory: some of them are not read.
            if more {
                patience = patience.checked_sub(1)?;
            }
            let look = self.app.clock.now().after(LOOK);
            tokio::select! {
                () = self.watch.changed(), if !more => {}
                () = self.app.clock.until(look) => {}
                () = self.life.over() => return None,
                () = self.app.stop.ordered() => return None,
            }
        }
    }

    /// Reads new entries, as far as there is memory; true if there are more. The header is read first, so that the
    /// ledger contains all entries that it counts.
    async fn look(&mut self) -> Result<bool, Problem> {
        let (run, _) = found(&self.app, self.workspace, self.run).await?;
        let mut more = false;
        if run.state.version > self.last {
            let _turn = self.app.bounds.ledger_reads.acquire().await.expect("it is never closed");
            let (workspace, run, from) = (self.workspace, self.run, self.last + 1);
            let page = LedgerPage { workspace, run, from, limit: PAGE_ENTRIES, bytes: PAGE_BYTES };
            for line in &self.app.store.ledger_part(page).await?.entries {
                let data = data(line);
                more = !self.room.grow(data.len());
                if more {
                    break;
                }
                self.last = line.number;
                self.ready.push_back(Ready { number: line.number, data });
            }
        }
        // Entries after an end (a released key, a restart) are shown only if they exist already.
        self.ended = !more && run.status().is_terminal() && (self.last >= run.state.version || run.purged);
        Ok(more)
    }
}

fn data(line: &Numbered) -> String {
    let data = serde_json::to_string(&entry_view(line)).expect("entries are plain data with text keys");
    // A raw JSON value may contain line ends between its tokens; in an event they have a meaning.
    data.replace(['\r', '\n'], " ")
}
