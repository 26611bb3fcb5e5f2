//! `GET /events`: what changes in a workspace, as server-sent events. A message names what changed, and not how: its reader
//! asks for what it shows. Messages only save time, because nothing depends on them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::select_all;
use futures_util::stream::unfold;
use semel::id::{RunId, WorkspaceId};
use semel::store::{Wake, Watch};
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::asked::QueryOf;
use super::describe::Always;
use super::runs::run_id;
use super::workers::KnownRuns;
use crate::access::{Caller, Life, Part};
use crate::api::{ChangeView, Permission};
use crate::app::App;

/// Interval of keep-alive comments: shorter than the timeouts of proxies.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Time between two messages, so that there are at most four in a second.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of runs that one stream follows.
const MOST_RUNS: usize = 100;

pub(super) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(changes)).layer(Extension(Arc::<KnownRuns>::default()))
}

/// Query of the workspace's event stream.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FollowedRuns {
    /// Ids of runs, separated by commas, at most 100: their changes are told by id. None if absent.
    runs: Option<String>,
}

/// Follow a workspace
///
/// Streams what has changed in the workspace as server-sent events, at most four in a second: the ids of those of the given runs
/// that have new entries, and whether runs were started, ended, paused or taken over. Some changes of other servers on the same
/// database are not told, and none are repeated: read what is shown again from time to time. The stream ends when the API key is
/// revoked or expires.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "followWorkspace",
    tag = "runs",
    params(FollowedRuns),
    responses(
        (status = 200, description = "An endless stream of messages, each a `ChangeView`", content_type = "text/event-stream", body = ChangeView),
        Always,
    ),
)]
async fn changes(
    State(app): State<Arc<App>>,
    Extension(known): Extension<Arc<KnownRuns>>,
    caller: Caller,
    QueryOf(asked): QueryOf<FollowedRuns>,
) -> Result<Response, Problem> {
    caller.may(Permission::Read)?;
    let workspace = caller.workspace;
    let place = app.bounds.stream(workspace)?;
    // Before the runs are looked up, so that nothing is missed in between.
    let wakes = app.store.wakes();
    let mut followed = Vec::new();
    for id in ids(asked.runs.as_deref().unwrap_or_default())? {
        if known.is_of(&app, id, workspace).await {
            followed.push((id, app.store.watch(id)));
        }
    }
    let life = app.access.life(&app, &caller);
    let follower = Follower { app, known, workspace, wakes, followed, life, began: false, _place: place };
    let stream = unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(Box::pin(stream)).keep_alive(keep_alive).into_response())
}

fn ids(text: &str) -> Result<Vec<RunId>, Problem> {
    let ids: Vec<_> =
        text.split(',').filter(|id| !id.is_empty()).map(run_id).collect::<Result<_, Problem>>()?;
    if ids.len() > MOST_RUNS {
        return Err(Problem::validation(format!("`runs` has at most {MOST_RUNS} ids; follow fewer runs")));
    }
    Ok(ids)
}

/// One open stream.
struct Follower {
    app: Arc<App>,
    known: Arc<KnownRuns>,
    workspace: WorkspaceId,
    wakes: Receiver<Wake>,
    followed: Vec<(RunId, Watch)>,
    /// Validity of the credential: the stream ends with it.
    life: Life,
    /// Whether the first message was sent, which says that nothing is missed from then on.
    began: bool,
    _place: Part,
}

/// What was noticed since the last message.
#[derive(Default)]
struct Noticed {
    runs: BTreeSet<RunId>,
    workspace: bool,
}

impl Follower {
    /// The next message; none when the credential is refused, the store closes or the server stops.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.began, true) {
            return Some(message(&Noticed::default()));
        }
        loop {
            let mut noticed = Noticed::default();
            self.notice(&mut noticed).await?;
            if !noticed.workspace && noticed.runs.is_empty() {
                continue;
            }
            // What comes in the meantime is in the same message. It is real time, because it concerns a connection.
            let pause = tokio::time::sleep(PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    () = &mut pause => return Some(message(&noticed)),
                    more = self.notice(&mut noticed) => more?,
                }
            }
        }
    }

    /// Waits for one change, and notes it if it is one of this workspace.
    async fn notice(&mut self, noticed: &mut Noticed) -> Option<()> {
        let changed = async {
            let watches: Vec<_> =
                self.followed.iter_mut().map(|(_, watch)| Box::pin(watch.changed())).collect();
            match watches.is_empty() {
                true => std::future::pending().await,
                false => select_all(watches).await.1,
            }
        };
        let heard = tokio::select! {
            () = self.app.stop.ordered() => return None,
            () = self.life.over() => return None,
            place = changed => {
                noticed.runs.insert(self.followed[place].0);
                return Some(());
            }
            heard = self.wakes.recv() => heard,
        };
        match heard {
            Err(RecvError::Closed) => return None,
            Err(RecvError::Lagged(_)) => noticed.workspace = true,
            Ok(wake) => self.heard(wake, noticed).await,
        }
        // Changes that are known already belong to the same message, however many they are.
        while !noticed.workspace {
            match self.wakes.try_recv() {
                Ok(wake) => self.heard(wake, noticed).await,
                Err(TryRecvError::Lagged(_)) => noticed.workspace = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        Some(())
    }

    async fn heard(&self, wake: Wake, noticed: &mut Noticed) {
        noticed.workspace |= match wake {
            // Starts of other workspaces are not disclosed.
            Wake::DueIn(workspace) => workspace == self.workspace,
            Wake::Due | Wake::Settled => false,
            Wake::All => true,
            Wake::Arrived(run) | Wake::Taken(run) | Wake::Ended(run) | Wake::Paused(run) => {
                noticed.workspace || self.known.is_of(&self.app, run, self.workspace).await
            }
        };
    }
}

fn message(noticed: &Noticed) -> Event {
    let runs = noticed.runs.iter().map(RunId::to_string).collect();
    let change = ChangeView { runs, workspace: noticed.workspace };
    Event::default().data(serde_json::to_string(&change).expect("a change is plain data"))
}
