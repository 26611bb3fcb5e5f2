//! Around every request: an id, a line in the log, a count, and the headers that keep browsers from guessing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use semel::clock::Clock;
use semel::id::WorkspaceId;
use tracing::Instrument;

use crate::metrics::Requests;

/// Under this name a request has its id, and its answer too.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken over from a caller.
const LONGEST_ID: usize = 64;

/// Id of the request: given to the routes, for the receipts of its calls.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

/// Whose call it was: left on the answer for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalledIn(pub(crate) WorkspaceId);

/// What is needed around requests.
pub(super) struct Observer {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) requests: Requests,
}

pub(super) async fn observe(
    State(observer): State<Arc<Observer>>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = observer.clock.now();
    let id = id_of(request.headers()).unwrap_or_else(|| observer.clock.uuid().simple().to_string());
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let route = Requests::route(path.as_ref());
    // Never the path itself: it holds keys and tokens.
    let span = tracing::info_span!("request", %method, route, id, status = tracing::field::Empty);
    let mut response = next.run(request).instrument(span.clone()).await;
    let status = response.status().as_u16();
    let ms = observer.clock.now().0.saturating_sub(begun.0);
    span.record("status", status);
    observer.requests.answered(route, &method, status, Duration::from_millis(ms.unsigned_abs()));
    let workspace = response.extensions().get::<CalledIn>().map(|called| called.0.to_string());
    // Health checks are frequent.
    match route {
        "/healthz" | "/readyz" | "/metrics" => tracing::debug!(%method, route, status, ms, id, "request"),
        _ => tracing::info!(%method, route, status, ms, workspace, id, "request"),
    }
    protect(response.headers_mut(), &id);
    response
}

/// The caller's id of the request, if it is fit for a log.
fn id_of(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    ((1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(fit)).then(|| id.to_owned())
}

/// What no answer lacks. A page that needs more than nothing says so itself.
fn protect(headers: &mut HeaderMap, id: &str) {
    let mut default = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    default(header::REFERRER_POLICY, "no-referrer");
    default(header::CACHE_CONTROL, "no-store");
    default(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_are_fit_for_a_log_are_taken_over() {
        let id = |text: &str| {
            id_of(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_bytes(text.as_bytes()).unwrap())]))
        };
        assert_eq!(id("a-1_b.2").as_deref(), Some("a-1_b.2"));
        for unfit in ["", "a b", "a\"b", "ä", &"a".repeat(LONGEST_ID + 1)] {
            assert_eq!(id(unfit), None, "{unfit:?}");
        }
    }
}
