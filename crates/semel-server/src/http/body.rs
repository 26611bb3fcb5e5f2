//! Request bodies: JSON, read strictly. What cannot be stored exactly is refused with a sentence that says what to
//! do.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures_util::{Stream, StreamExt as _};
use semel::rules::json::{Json, MAX_BYTES};
use serde::de::DeserializeOwned;

use super::Problem;
use crate::access::Intake;

/// Maximum time to receive a body: the largest call of a worker at five megabits per second.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a refused body that are read and discarded. A client that is still sending when the connection closes
/// loses the answer, because many clients read it only after they have sent everything.
const THROWN_AWAY: usize = 64 * 1024 * 1024;
/// Maximum time to read the rest of a refused body.
const REST: Duration = Duration::from_secs(10);

/// A body as JSON. An empty body is read as `{}`.
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
            Problem::validation(format!("the body is not valid for this route: {refused}"))
        })?;
        Ok(Self(value))
    }
}

/// A body that is a text with at most `MOST` bytes.
#[derive(Debug)]
pub(super) struct TextBody<const MOST: usize>(pub(super) String);

impl<const MOST: usize, S: Send + Sync> FromRequest<S> for TextBody<MOST> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read_text(request, MOST).await.map(Self)
    }
}

/// The body as text, if it has at most so many bytes.
pub(crate) async fn read_text(request: Request, most: usize) -> Result<String, Problem> {
    let bytes = read(request, most).await?;
    Ok(utf8(&bytes)?.to_owned())
}

/// Reads the body, if it is within the limit and the workspace has memory for it. A refused body is read to its end,
/// within bounds, so that its sender gets the answer.
pub(super) async fn read(request: Request, most: usize) -> Result<Bytes, Problem> {
    let intake = request.extensions().get::<Intake>().cloned();
    let (long, asks) = (length(request.headers()) > most, request.headers().contains_key(header::EXPECT));
    let mut chunks = request.into_body().into_data_stream();
    let refused = match long {
        // The sender waits for `100 Continue` before it sends anything.
        true if asks => return Err(too_long(most)),
        true => too_long(most),
        false => match tokio::time::timeout(PATIENCE, gather(&mut chunks, most, intake.as_ref())).await {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(refused)) => refused,
            Err(_) => {
                let detail =
                    format!("the body was not received within {} s; send it again", PATIENCE.as_secs());
                return Err(Problem::unavailable(detail));
            }
        },
    };
    // The result does not matter: the answer is the same.
    drop(tokio::time::timeout(REST, throw_away(&mut chunks)).await);
    Err(refused)
}

fn length(headers: &HeaderMap) -> usize {
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    said.unwrap_or(0)
}

fn too_long(most: usize) -> Problem {
    Problem::too_large(format!("the body is longer than {most} bytes; send less"))
}

/// Reads a body in chunks; its memory counts for the workspace.
async fn gather<E>(
    chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin),
    most: usize,
    intake: Option<&Intake>,
) -> Result<Bytes, Problem> {
    let (mut first, mut all) = (Bytes::new(), Vec::new());
    while let Some(chunk) = chunks.next().await {
        let chunk =
            chunk.map_err(|_| Problem::too_large("the body was cut off, or is too long; send it again"))?;
        if first.len() + all.len() + chunk.len() > most {
            return Err(too_long(most));
        }
        if intake.is_some_and(|intake| !intake.grow(chunk.len())) {
            return Err(Problem::rate_limited(
                "too many bytes of request bodies are in transfer for this workspace, or for all workspaces; send fewer requests at once",
            ));
        }
        if first.is_empty() && all.is_empty() {
            // Most bodies come in one chunk, which need not be copied.
            first = chunk;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&chunk);
    }
    Ok(if all.is_empty() { first } else { all.into() })
}

async fn throw_away<E>(chunks: &mut (impl Stream<Item = Result<Bytes, E>> + Unpin)) {
    let mut read = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        read += chunk.len();
        if read > THROWN_AWAY {
            return;
        }
    }
}

/// Checks that a body is UTF-8 text.
pub(super) fn utf8(bytes: &Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::validation("the body is not UTF-8; send it as UTF-8"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::iter;

    use super::*;

    fn chunks(texts: &[&'static str]) -> impl Stream<Item = Result<Bytes, Infallible>> + Unpin {
        let chunks: Vec<_> = texts.iter().map(|text| Ok(Bytes::from_static(text.as_bytes()))).collect();
        iter(chunks)
    }

    #[tokio::test]
    async fn a_body_is_the_same_in_one_piece_and_in_many() {
        for pieces in [&["abcdef"][..], &["abc", "def"], &["", "a", "", "bcde", "f", ""]] {
            assert_eq!(gather(&mut chunks(pieces), 6, None).await.unwrap(), "abcdef");
            assert_eq!(gather(&mut chunks(pieces), 5, None).await.unwrap_err().status(), 413);
        }
        assert!(gather(&mut chunks(&[]), 5, None).await.unwrap().is_empty());
    }
}
