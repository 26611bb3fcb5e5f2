//! What operations ask: is it alive, does it take work, what has it counted.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::store::Query;

use crate::access;
use crate::app::App;
use crate::config::Secret;
use crate::http::Problem;
use crate::metrics;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A store that takes longer than this to list nothing takes no work.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(alive)).route("/readyz", get(ready))
}

/// `/metrics`, for callers with this token; for everybody, if there is none.
pub(super) fn metrics(token: Option<Secret>) -> Router {
    Router::new().route("/metrics", get(numbers)).with_state(token.map(Arc::new))
}

/// `/metrics` where it is not served: the figures are those of all workspaces.
pub(super) fn no_metrics() -> Router {
    let told = || async {
        Problem::not_found(
            "metrics are not served here; set `metrics.listen` or `metrics.token` of the server",
        )
    };
    Router::new().route("/metrics", get(told))
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
async fn numbers(State(token): State<Option<Arc<Secret>>>, headers: HeaderMap) -> Result<Response, Problem> {
    if token.is_some_and(|token| !access::has_token(&headers, &token)) {
        return Err(Problem::auth("no valid credential: send `metrics.token` as `Authorization: Bearer …`"));
    }
    let text = metrics::recorder().map(PrometheusHandle::render).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, TEXT)], text).into_response())
}
