//! What stands before the routes, from the outside in: log and count, panics, hosts, origins, time, callers.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::CompressionLevel;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate, SizeAbove};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::observe::{Observer, observe};
use super::{Error, host};
use crate::access;
use crate::app::App;
use crate::config::{Auth, Config};
use crate::http::Problem;
use crate::metrics::Requests;

/// What a long poll may take on top of the time of a request: the longest wait of a route.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Size from which an answer is compressed, in bytes.
const COMPRESSED: u16 = 1024;
/// How long a browser need not ask again whether it may call.
const PREFLIGHT: Duration = Duration::from_mins(10);

/// Puts everything before the routes.
pub(super) fn around(router: Router, app: &Arc<App>, config: &Config) -> Result<Router, Error> {
    let observer = Observer { clock: app.clock.clone(), requests: Requests::default() };
    let mut router = router
        .layer(from_fn_with_state(app.clone(), access::gate))
        .layer(from_fn_with_state(config.limits.request_timeout, in_time));
    router = router.layer(compression());
    if !config.cors.origins.is_empty() {
        router = router.layer(cors(&config.cors.origins)?);
    }
    if config.auth == Auth::None {
        let origins: Arc<[String]> = config.cors.origins.clone().into();
        router = router.layer(from_fn_with_state(origins, host::check));
    }
    Ok(router.layer(CatchPanicLayer::custom(panicked)).layer(from_fn_with_state(Arc::new(observer), observe)))
}

/// A panic is a defect, and the request's alone. What it said may hold what the request held: it is not repeated.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    tracing::error!("a handler has panicked; its request is answered with 503");
    Problem::unavailable(
        "the server could not answer because of a defect; repeat the request with the same key, and report the defect",
    )
    .into_response()
}

/// Ends a request that takes too long. What it had begun to write may still take place, as with any lost answer.
async fn in_time(State(limit): State<Duration>, request: Request, next: Next) -> Response {
    let limit = if may_wait(&request) { limit + LONGEST_WAIT } else { limit };
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("not answered in {} s; repeat the call with the same key", limit.as_secs());
            Problem::unavailable(detail).into_response()
        }
    }
}

/// Whether it asks to wait for something: `?wait=30`, `Prefer: wait=30`, or a worker that asks for runs.
fn may_wait(request: &Request) -> bool {
    let by_query = request.uri().query().is_some_and(|query| query.contains("wait="));
    by_query || request.headers().contains_key("prefer") || request.uri().path().ends_with("/claim")
}

/// Compresses what is long: JSON, pages, and what pages are made of. Never streams, whose messages must not wait for each other.
fn compression() -> CompressionLayer<impl Predicate> {
    CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(COMPRESSED).and(is_text))
}

fn is_text(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    matches!(
        kind,
        "application/json"
            | "application/problem+json"
            | "text/html"
            | "text/css"
            | "text/javascript"
            | "image/svg+xml"
    )
}

fn cors(origins: &[String]) -> Result<CorsLayer, Error> {
    let origin = |text: &String| {
        let plain = text.split_once("://").is_some_and(|(scheme, place)| {
            matches!(scheme, "http" | "https") && !place.is_empty() && !place.contains(['/', '*'])
        });
        let wrong = || {
            Error::Config(format!(
                "`cors.origins`: {text:?} is not an origin such as `https://app.example.com`"
            ))
        };
        HeaderValue::from_str(text).ok().filter(|_| plain).ok_or_else(wrong)
    };
    let origins = origins.iter().map(origin).collect::<Result<Vec<_>, _>>()?;
    let own =
        |names: &[&'static str]| names.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>();
    let mut asked = own(&["idempotency-key", "x-api-key", "prefer", "last-event-id", "x-request-id"]);
    asked.extend([header::AUTHORIZATION, header::CONTENT_TYPE]);
    Ok(CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(asked)
        .expose_headers(own(&["idempotent-replayed", "preference-applied", "retry-after", "x-request-id"]))
        .max_age(PREFLIGHT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::routing::get;
    use semel::clock::SystemClock;
    use semel::store::memory::MemoryStore;
    use tower::ServiceExt;

    async fn ask(router: Router, path: &str) -> (u16, String) {
        let clock = Arc::new(SystemClock::new());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let app = Arc::new(App::open(store, clock));
        let router = around(router, &app, &Config::default()).unwrap();
        let response = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_does_not_repeat_what_it_said() {
        async fn panics() {
            panic!("canary");
        }
        let (status, body) = ask(Router::new().route("/panics", get(panics)), "/panics").await;
        assert_eq!(status, 503);
        assert!(body.contains("UNAVAILABLE") && !body.contains("canary"), "{body}");
    }

    #[test]
    fn who_asks_to_wait_has_more_time() {
        let request = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        assert!(may_wait(&request("/api/v1/workflow-runs/x?wait=30")));
        assert!(may_wait(&request("/api/v1/workers/claim")));
        assert!(!may_wait(&request("/api/v1/workflow-runs")));
        let mut preferred = request("/api/v1/workflow-runs");
        preferred.headers_mut().insert("prefer", HeaderValue::from_static("wait=30"));
        assert!(may_wait(&preferred));
    }
}
