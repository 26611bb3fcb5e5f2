//! Bodies: JSON, read strictly. Whatever could not be kept exactly is refused with a sentence that says what to do.

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use semel::rules::json::{Json, MAX_BYTES};
use serde::de::DeserializeOwned;

use super::Problem;

/// A body as JSON. An empty one is read as `{}`, so that a control needs none.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let bytes = read(request, MAX_BYTES).await?;
        let text = utf8(&bytes)?;
        let text = if text.trim().is_empty() { "{}" } else { text };
        Json::parse(text).map_err(|refused| Problem::from(semel::Error::from(refused)))?;
        let value = serde_json::from_str(text).map_err(|refused| {
            Problem::validation(format!("the body is not what this route takes: {refused}"))
        })?;
        Ok(Self(value))
    }
}

/// The body, if it is not longer than that.
pub(super) async fn read(request: Request, most: usize) -> Result<Bytes, Problem> {
    to_bytes(request.into_body(), most).await.map_err(|_| {
        Problem::too_large(format!("the body is longer than {most} bytes, or was cut off; send less"))
    })
}

/// A body as text.
pub(super) fn utf8(bytes: &Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::validation("the body is not UTF-8; send JSON as UTF-8"))
}
