//! Bodies: JSON, read strictly. Whatever could not be kept exactly is refused with a sentence that says what to do.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use futures_util::{Stream, StreamExt as _};
use semel::rules::json::{Json, MAX_BYTES};
use serde::de::DeserializeOwned;

use super::Problem;
use crate::access::Intake;

/// How long a body may take to come, from its first byte to its last: the largest call of a worker in five megabits a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// So much of a body that is refused is read all the same, and thrown away. A client that is still sending when the
/// connection is closed loses the answer; many clients read it only after they have sent everything.
const THROWN_AWAY: usize = 64 * 1024 * 1024;
/// How long the rest of a refused body is waited for.
const REST: Duration = Duration::from_secs(10);

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

/// The body, if it is not longer than that and there is room for it. One that is refused is read to its end, within
/// bounds, so that its sender gets the answer.
pub(super) async fn read(request: Request, most: usize) -> Result<Bytes, Problem> {
    let intake = request.extensions().get::<Intake>().cloned();
    let (long, asks) = (length(request.headers()) > most, request.headers().contains_key(header::EXPECT));
    let mut chunks = request.into_body().into_data_stream();
    let refused = match long {
        // Its sender waits for a word before it sends anything.
        true if asks => return Err(too_long(most)),
        true => too_long(most),
        false => match tokio::time::timeout(PATIENCE, gather(&mut chunks, most, intake.as_ref())).await {
            Ok(Ok(bytes)) => return Ok(bytes),
            Ok(Err(refused)) => refused,
            Err(_) => {
                let detail = format!("the body did not come in {} s; send it again", PATIENCE.as_secs());
                return Err(Problem::unavailable(detail));
            }
        },
    };
    // Whatever comes of it, the answer is the same.
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

/// Reads a body as it comes; what is in memory counts for the workspace.
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
                "too many bytes of bodies are on their way from this workspace, or from all; send fewer calls at once",
            ));
        }
        if first.is_empty() && all.is_empty() {
            // Most bodies come in one piece, which need not be copied.
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

/// A body as text.
pub(super) fn utf8(bytes: &Bytes) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::validation("the body is not UTF-8; send JSON as UTF-8"))
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
