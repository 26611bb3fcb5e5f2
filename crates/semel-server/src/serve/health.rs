//! What operations ask: is it alive, does it take work, what has it counted.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use semel::clock::Time;
use semel::id::{RunId, WorkspaceId};
use semel::store::{Find, FindBy};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::access;
use crate::app::App;
use crate::config::Secret;
use crate::http::Problem;
use crate::metrics;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A store that takes longer than this to look one run up takes no work.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer of the store is reused for other callers. The route needs no credential, so any number of callers must
/// cost the store no more than a few look-ups a second.
const FRESH: Duration = Duration::from_millis(250);

pub(super) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .layer(Extension(Arc::new(Readiness::default())))
}

/// `/metrics`, for callers with this token; for every caller if there is none.
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

/// What the store's last answer was, and when. One caller at a time looks; the others wait for its answer.
#[derive(Default)]
struct Readiness(Mutex<Option<(Time, bool)>>);

impl Readiness {
    async fn check(&self, app: &App) -> Result<(), Problem> {
        let mut last = self.0.lock().await;
        let now = app.clock.now();
        let fresh = |at: &Time| *at <= now && now < at.after(FRESH);
        match last.as_ref().filter(|(at, _)| fresh(at)) {
            Some((_, true)) => return Ok(()),
            Some((_, false)) => {
                return Err(Problem::unavailable("the store did not answer a moment ago; ask again"));
            }
            None => {}
        }
        let looked = look(app).await;
        *last = Some((app.clock.now(), looked.is_ok()));
        looked
    }
}

/// Looks a run up that does not exist: one probe of an index, on the way that all look-ups go.
async fn look(app: &App) -> Result<(), Problem> {
    let find = Find { workspace: WorkspaceId::DEFAULT, by: FindBy::Id(RunId(Uuid::nil())) };
    match tokio::time::timeout(PATIENCE, app.store.find(find)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Problem::from(error)),
        Err(_) => Err(Problem::unavailable("the store does not answer in time")),
    }
}

/// The process answers. It says nothing of the store: a restart would not repair that.
async fn alive() -> &'static str {
    "alive\n"
}

/// The server takes work: it is not stopping, and its store answers.
async fn ready(
    State(app): State<Arc<App>>,
    Extension(readiness): Extension<Arc<Readiness>>,
) -> Result<&'static str, Problem> {
    if app.stop.is_ordered() {
        return Err(Problem::unavailable("this server is stopping; ask another one"));
    }
    readiness.check(&app).await.map(|()| "ready\n")
}

/// What was counted, as Prometheus reads it.
async fn numbers(State(token): State<Option<Arc<Secret>>>, headers: HeaderMap) -> Result<Response, Problem> {
    if token.is_some_and(|token| !access::has_token(&headers, &token)) {
        return Err(Problem::auth("no valid credential: send `metrics.token` as `Authorization: Bearer …`"));
    }
    let text = metrics::recorder().map(PrometheusHandle::render).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, TEXT)], text).into_response())
}

#[cfg(test)]
mod tests {
    use semel::store::Store;
    use semel::store::sqlite::{SqliteOptions, SqliteStore};
    use semel::testing::ManualClock;

    use super::*;

    #[tokio::test]
    async fn an_answer_of_the_store_holds_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(Time(1_000), 1));
        let store = SqliteStore::open(SqliteOptions::new(folder.path().join("semel.db"))).await.unwrap();
        let app = App::open(Arc::new(store.clone()), clock.clone());
        let readiness = Readiness::default();
        assert!(readiness.check(&app).await.is_ok());
        store.close().await.unwrap();
        assert!(readiness.check(&app).await.is_ok(), "asked a moment ago");
        clock.advance(FRESH);
        for _ in 0..2 {
            assert!(readiness.check(&app).await.is_err(), "a store that is closed does not answer");
        }
    }
}
