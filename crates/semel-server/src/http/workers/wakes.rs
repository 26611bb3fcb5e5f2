//! Wakes: events that are streamed to workers, line by line. They only save time: workers also look periodically.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use semel::id::WorkspaceId;
use semel::store::Wake;
use serde::Deserialize;
use tokio::sync::OwnedMutexGuard;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Sleep, sleep};

use super::answer::Refusal;
use super::{Shared, Workers};
use crate::access::{Caller, Life, Part};
use crate::api::Permission;
use crate::app::App;
use crate::http::asked::QueryOf;
use crate::http::describe::{SpokenProtocol, WorkerProblems};

/// Maximum silence of the stream, so that both ends can detect a dead connection.
const SILENCE: Duration = Duration::from_secs(15);
/// Delay before the other listeners are told that a run is due; the first one may have no free slot.
const LATER: Duration = Duration::from_millis(100);
/// Maximum number of wakes in one line.
const AT_ONCE: usize = 512;

/// Query of `GET /workers/wakes`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListenWakes {
    /// Whether to tell of runs that are due; true if absent. A program that drives no runs says false, and needs the
    /// permission `read` instead of `worker`.
    due: Option<bool>,
}

/// Stream wakes: one JSON list of wakes per line, and an empty line at least every fifteen seconds.
#[utoipa::path(
    get, path = "/workers/wakes",
    operation_id = "workerWakes", tag = "workers",
    params(ListenWakes, SpokenProtocol),
    responses((status = 200, content_type = "application/x-ndjson", body = Vec<Wake>, description = "An endless stream of lines: each is empty, or a list of wakes"), WorkerProblems),
)]
pub(super) async fn wakes(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
    QueryOf(asked): QueryOf<ListenWakes>,
) -> Result<Response, Refusal> {
    let due = asked.due.unwrap_or(true);
    match due {
        true => caller.may(Permission::Worker)?,
        false => caller.may_read_or_work()?,
    }
    let turn = due.then(|| ListenerTurn::of(&workers, caller.workspace));
    let place = app.bounds.stream(caller.workspace)?;
    let ear = Ear {
        life: app.access.life(&app, &caller),
        _place: place,
        wakes: app.store.wakes(),
        turn,
        app,
        workers,
        workspace: caller.workspace,
        late: None,
        began: false,
    };
    let lines = stream::unfold(ear, |mut ear| async {
        let line = ear.line().await?;
        Some((Ok::<_, std::convert::Infallible>(line), ear))
    });
    let headers = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Whether it is this listener's turn to be told first that something is due.
enum ListenerTurn {
    Mine { _until_dropped: OwnedMutexGuard<()> },
    Waits(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
}

impl ListenerTurn {
    /// Queues up for the turn.
    fn of(workers: &Workers, workspace: WorkspaceId) -> Self {
        Self::Waits(Box::pin(workers.turns.of(workspace).lock_owned()))
    }

    /// Completes when the turn has come; never, if it has already.
    async fn comes(&mut self) {
        match self {
            Self::Mine { .. } => std::future::pending().await,
            Self::Waits(turn) => {
                let guard = turn.await;
                *self = Self::Mine { _until_dropped: guard };
            }
        }
    }
}

/// Stream of one listening worker.
struct Ear {
    app: Arc<App>,
    workers: Arc<Workers>,
    workspace: WorkspaceId,
    wakes: Receiver<Wake>,
    /// Its turn to be told first that something is due; none if it is not told of that.
    turn: Option<ListenerTurn>,
    /// Time at which it is told what another listener was told first. Real time, because it concerns a connection.
    late: Option<Pin<Box<Sleep>>>,
    began: bool,
    /// Validity of the credential: the stream ends with it.
    life: Life,
    _place: Part,
}

impl Ear {
    /// The next line; `None` when the store has closed, the credential is refused or the server stops.
    async fn line(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.began, true) {
            // Tells the listener that nothing is missed from here on.
            return Some(Bytes::from_static(b"\n"));
        }
        let silence = sleep(SILENCE);
        tokio::pin!(silence);
        loop {
            let heard = tokio::select! {
                biased;
                () = self.app.stop.ordered() => return None,
                () = self.life.over() => return None,
                () = comes(self.turn.as_mut()) => continue,
                heard = self.wakes.recv() => heard,
                () = over(self.late.as_mut()) => {
                    self.late = None;
                    return Some(line(&[Wake::Due]));
                }
                () = &mut silence => return Some(Bytes::from_static(b"\n")),
            };
            let told = self.gather(heard).await?;
            if !told.is_empty() {
                return Some(line(&told));
            }
        }
    }

    /// All pending wakes that are meant for this listener.
    async fn gather(&mut self, first: Result<Wake, RecvError>) -> Option<Vec<Wake>> {
        let (mut told, mut next) = (Vec::new(), first);
        let mut due = false;
        loop {
            match next {
                Err(RecvError::Closed) if told.is_empty() => return None,
                Err(RecvError::Closed) => break,
                Err(RecvError::Lagged(_)) => told.push(Wake::All),
                Ok(Wake::Due) => due = true,
                // Starts of other tenants are not disclosed.
                Ok(Wake::DueIn(workspace)) => due |= workspace == self.workspace,
                Ok(wake @ (Wake::All | Wake::Settled)) => told.push(wake),
                Ok(wake @ (Wake::Arrived(run) | Wake::Taken(run) | Wake::Paused(run) | Wake::Ended(run))) => {
                    if self.workers.known.is_of(&self.app, run, self.workspace).await {
                        told.push(wake);
                    }
                }
            }
            if told.len() >= AT_ONCE {
                break;
            }
            next = match self.wakes.try_recv() {
                Ok(wake) => Ok(wake),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            };
        }
        if due {
            self.hear_due(&mut told);
        }
        Some(told)
    }

    fn hear_due(&mut self, told: &mut Vec<Wake>) {
        match self.turn {
            None => {}
            Some(ListenerTurn::Mine { .. }) => {
                told.push(Wake::Due);
                self.late = None;
                self.turn = Some(ListenerTurn::of(&self.workers, self.workspace));
            }
            Some(ListenerTurn::Waits(_)) => {
                self.late.get_or_insert_with(|| Box::pin(sleep(LATER)));
            }
        }
    }
}

/// Completes when the turn has come; never, if there is none.
async fn comes(turn: Option<&mut ListenerTurn>) {
    match turn {
        Some(turn) => turn.comes().await,
        None => std::future::pending().await,
    }
}

/// Completes at the given time; never, if there is none.
async fn over(time: Option<&mut Pin<Box<Sleep>>>) {
    match time {
        Some(time) => time.await,
        None => std::future::pending().await,
    }
}

fn line(wakes: &[Wake]) -> Bytes {
    let mut line = serde_json::to_vec(wakes).expect("wakes are plain data");
    line.push(b'\n');
    line.into()
}
