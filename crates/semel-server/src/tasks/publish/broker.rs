//! What brokers have in common: the message as it is sent, and patience with a broker that is started again.

use std::time::Duration;

use semel::{Attempt, Fail, Result};
use serde_json::Value as Json;

use super::wrong;
use crate::tasks::connection::within;

/// How long a broker is asked what it has: one that is started again takes some seconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Pause before a broker is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a message of a line that broke may still be on its way.
pub(super) const SETTLE: Duration = Duration::from_secs(10);

/// Asks a broker, and asks again if there is no answer. Without an answer within [`SETTLE`], it stays unknown whether the message is
/// there.
pub(super) async fn patiently<T, F, Fut>(attempt: &Attempt, what: &str, ask: F) -> Result<T>
where
    F: Fn() -> Fut,
    Fut: Future<Output = std::result::Result<T, String>>,
{
    let until = attempt.clock().now().after(PATIENCE);
    loop {
        let why = match within(attempt, PATIENCE, ask()).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(why)) => why,
            None => format!("there was no answer within {PATIENCE:?}"),
        };
        if attempt.clock().now() >= until {
            return Err(Fail::uncertain(format!("{what} is not known: {why}")));
        }
        attempt.clock().until(attempt.clock().now().after(PAUSE)).await;
    }
}

/// The message as it is sent: a text as it is, everything else as JSON.
pub(super) fn body(args: &Json) -> Vec<u8> {
    match args.get("data") {
        Some(Json::String(text)) => text.clone().into_bytes(),
        Some(other) => other.to_string().into_bytes(),
        None => b"null".to_vec(),
    }
}

/// The headers of the message, checked.
pub(super) fn headers<'a>(
    args: &'a Json,
    why_wrong: fn(&str) -> Option<&'static str>,
) -> Result<Vec<(&'a str, &'a str)>> {
    let given = args.get("headers").and_then(Json::as_object);
    let header = |(name, value): (&'a String, &'a Json)| match (why_wrong(name), value.as_str()) {
        (Some(why), _) => Err(wrong(format!("the header `{name}` cannot be set: {why}"))),
        (None, None) => Err(wrong(format!("the header `{name}` is no text"))),
        (None, Some(value)) => Ok((name.as_str(), value)),
    };
    given.into_iter().flatten().map(header).collect()
}

/// A text of the arguments that is not empty.
pub(super) fn text<'a>(args: &'a Json, name: &str) -> Result<&'a str> {
    let text = args.get(name).and_then(Json::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| wrong(format!("`{name}` is no text, or an empty one")))
}
