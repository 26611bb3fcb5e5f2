//! Wakes: what happens, told to workers line by line. They only save time: whoever waits also looks by itself.

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
use tokio::sync::OwnedMutexGuard;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Sleep, sleep};

use super::answer::Refusal;
use super::{Shared, Workers};
use crate::access::{Caller, Life, Part};
use crate::api::Permission;
use crate::app::App;
use crate::http::describe::Always;

/// So often something is said, so that both ends know that the other one lives.
const SILENCE: Duration = Duration::from_secs(15);
/// Whoever's turn it was not hears so much later that something is due: whoever's turn it was may have no room.
const LATER: Duration = Duration::from_millis(100);
/// At most so many wakes in one line.
const AT_ONCE: usize = 512;

/// Hear what happens: one JSON list of wakes per line, an empty line at least every fifteen seconds.
#[utoipa::path(
    get, path = "/workers/wakes",
    operation_id = "workerWakes", tag = "workers",
    responses((status = 200, content_type = "application/x-ndjson", body = String, description = "Lines, without end"), Always),
)]
pub(super) async fn wakes(
    State(app): State<Arc<App>>,
    Extension(workers): Shared,
    caller: Caller,
) -> Result<Response, Refusal> {
    caller.may(Permission::Worker)?;
    let place = app.bounds.stream(caller.workspace)?;
    let ear = Ear {
        life: app.access.life(&app, &caller),
        _place: place,
        wakes: app.store.wakes(),
        turn: Turn::of(&workers, caller.workspace),
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

/// Whose turn it is to hear first that something is due.
enum Turn {
    Mine { _until_dropped: OwnedMutexGuard<()> },
    Waits(Pin<Box<dyn Future<Output = OwnedMutexGuard<()>> + Send>>),
}

impl Turn {
    /// At the end of the line.
    fn of(workers: &Workers, workspace: WorkspaceId) -> Self {
        Self::Waits(Box::pin(workers.turns.of(workspace).lock_owned()))
    }

    /// Is over when the turn has come; never if it has.
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

/// One listening worker.
struct Ear {
    app: Arc<App>,
    workers: Arc<Workers>,
    workspace: WorkspaceId,
    wakes: Receiver<Wake>,
    turn: Turn,
    /// When it is told what others heard before. Not by the store's clock: this is about a connection.
    late: Option<Pin<Box<Sleep>>>,
    began: bool,
    /// The validity of the credential: the stream ends with it.
    life: Life,
    _place: Part,
}

impl Ear {
    /// The next line; none when the store has closed, the credential is refused or the server stops.
    async fn line(&mut self) -> Option<Bytes> {
        if !std::mem::replace(&mut self.began, true) {
            // The listener knows by this that nothing is missed from here on.
            return Some(Bytes::from_static(b"\n"));
        }
        let silence = sleep(SILENCE);
        tokio::pin!(silence);
        loop {
            let heard = tokio::select! {
                biased;
                () = self.app.stop.ordered() => return None,
                () = self.life.over() => return None,
                () = self.turn.comes() => continue,
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

    /// All that was told by now, as far as it is for this listener.
    async fn gather(&mut self, first: Result<Wake, RecvError>) -> Option<Vec<Wake>> {
        let (mut told, mut next) = (Vec::new(), first);
        let mut due = false;
        loop {
            match next {
                Err(RecvError::Closed) if told.is_empty() => return None,
                Err(RecvError::Closed) => break,
                Err(RecvError::Lagged(_)) => told.push(Wake::All),
                Ok(Wake::Due) => due = true,
                // What another tenant has started is none of this one's business.
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
            Turn::Mine { .. } => {
                told.push(Wake::Due);
                self.late = None;
                self.turn = Turn::of(&self.workers, self.workspace);
            }
            Turn::Waits(_) => {
                self.late.get_or_insert_with(|| Box::pin(sleep(LATER)));
            }
        }
    }
}

/// Is over when that time has come; never if there is none.
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
