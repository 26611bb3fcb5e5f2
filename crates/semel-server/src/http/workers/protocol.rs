//! The version of the protocol: every answer says it, and a request that says another one is refused.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use semel::remote::wire::{PROTOCOL, PROTOCOL_HEADER};

use super::answer::Refusal;
use crate::http::Problem;

const HEADER: HeaderName = HeaderName::from_static(PROTOCOL_HEADER);

/// Answers a request of this protocol, or refuses one of another.
pub(super) async fn speak(request: Request, next: Next) -> Response {
    let mut response = match check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => Refusal::from(problem).into_response(),
    };
    response.headers_mut().insert(HEADER, HeaderValue::from_static(PROTOCOL));
    response
}

/// A request without the header is one of a plain HTTP client: it is answered.
fn check(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get(HEADER) {
        Some(spoken) if spoken != PROTOCOL => Err(Problem::validation(format!(
            "this server speaks version {PROTOCOL} of the protocol of workers, and the request says version {}: install release \
             {} of the SDK, which is that of the server",
            spoken.to_str().unwrap_or("unknown"),
            env!("CARGO_PKG_VERSION"),
        ))),
        _ => Ok(()),
    }
}
