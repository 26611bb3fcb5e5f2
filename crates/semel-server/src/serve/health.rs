//! What operations ask: is it alive, does it take work, what has it counted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::store::Query;

use crate::app::App;
use crate::http::Problem;
use crate::metrics;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A store that takes longer than this to list nothing takes no work.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready)).route("/metrics", get(numbers))
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
    let query = Query { since: Some(Time(i64::MAX)), ..Query::all(WorkspaceId::DEFAULT, 1) };
    match tokio::time::timeout(PATIENCE, app.store.list(query)).await {
        Ok(Ok(_)) => Ok("ready\n"),
        Ok(Err(error)) => Err(Problem::from(error)),
        Err(_) => Err(Problem::unavailable("the store does not answer in time")),
    }
}

/// What was counted, as Prometheus reads it.
async fn numbers() -> impl IntoResponse {
    let text = metrics::recorder().map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, TEXT)], text)
}
