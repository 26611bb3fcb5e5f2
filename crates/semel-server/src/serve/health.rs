//! What operations ask: is it alive, does it take work.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::store::Query;

use crate::app::App;
use crate::http::Problem;

/// A store that takes longer than this to list nothing takes no work.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

/// The process answers. It says nothing of the store: a restart would not repair that.
async fn alive() -> &'static str {
    "alive\n"
}

/// The server takes work: it is not stopping, and its store answers.
async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Problem> {
    if app.stop.is_ordered() {
        return Err(Problem::unavailable("this server is stopping; ask another one"));
    }
    // Nothing is created that late, so this is a look at an index and no more.
    let query = Query {
        workspace: WorkspaceId::DEFAULT,
        status: None,
        workflow: None,
        since: Some(Time(i64::MAX)),
        before: None,
        limit: 1,
    };
    match tokio::time::timeout(PATIENCE, app.store.list(query)).await {
        Ok(Ok(_)) => Ok("ready\n"),
        Ok(Err(error)) => Err(Problem::from(error)),
        Err(_) => Err(Problem::unavailable("the store does not answer in time")),
    }
}
