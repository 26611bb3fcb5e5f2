//! Path, query and headers of a request. What is not understood is refused.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use jiff::Timestamp;
use semel::clock::Time;
use semel::rules::key::CallId;
use serde::de::DeserializeOwned;

use super::Problem;

/// Longest wait of one request: below the patience of common proxies and load balancers.
pub(super) const MAX_WAIT: Duration = Duration::from_mins(1);

/// Parts of the path, percent-decoded.
#[derive(Debug)]
pub(super) struct PathOf<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(refused) => Err(Problem::validation(format!(
                "the path is not valid: {}; percent-encode its parts as UTF-8",
                refused.body_text()
            ))),
        }
    }
}

/// Query of the request.
#[derive(Debug)]
pub(super) struct QueryOf<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(refused) => Err(Problem::validation(format!(
                "the query is not valid for this route: {}",
                refused.body_text()
            ))),
        }
    }
}

/// The header `Idempotency-Key`, if present: a quoted string as in the IETF draft, or bare.
#[derive(Debug)]
pub(super) struct CallKey(pub(super) Option<CallId>);

impl CallKey {
    /// The key in these headers.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(text) = single(headers, "idempotency-key")? else { return Ok(Self(None)) };
        let text = if text.starts_with('"') { unquote(text)? } else { text.to_owned() };
        let id = CallId::new(text)
            .map_err(|refused| Problem::validation(format!("the header Idempotency-Key: {refused}")))?;
        Ok(Self(Some(id)))
    }

    /// Text of the key.
    pub(super) fn text(&self) -> Option<&str> {
        self.0.as_ref().map(CallId::as_str)
    }

    /// The header value, or `other` if there is no header. Error if both are given and differ.
    pub(super) fn or(&self, other: Option<String>, name: &str) -> Result<Option<String>, Problem> {
        match (self.text(), other) {
            (Some(header), Some(other)) if header != other => Err(Problem::validation(format!(
                "the header Idempotency-Key and `{name}` differ; send one of them, or the same in both"
            ))),
            (header, other) => Ok(header.map(str::to_owned).or(other)),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for CallKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.headers)
    }
}

/// Wait of the header `Prefer: wait=30` (RFC 7240), at most [`MAX_WAIT`]. Other preferences are ignored.
#[derive(Debug)]
pub(super) struct Prefer(pub(super) Option<Duration>);

impl<S: Send + Sync> FromRequestParts<S> for Prefer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        for header in parts.headers.get_all("prefer") {
            let text = header.to_str().unwrap_or_default();
            for preference in text.split(',') {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("wait") {
                    let seconds = value.split(';').next().unwrap_or_default().trim();
                    return Ok(Self(Some(seconds_of(seconds, "Prefer: wait")?.min(MAX_WAIT))));
                }
            }
        }
        Ok(Self(None))
    }
}

/// Parses the wait of a query; refused if it is longer than [`MAX_WAIT`].
pub(super) fn wait_of(text: Option<&str>) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let wait = seconds_of(text, "wait")?;
    if wait > MAX_WAIT {
        let most = MAX_WAIT.as_secs();
        return Err(Problem::validation(format!(
            "`wait` is at most {most} seconds; repeat the request after that"
        )));
    }
    Ok(Some(wait))
}

fn seconds_of(text: &str, name: &str) -> Result<Duration, Problem> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = digits.then(|| text.parse().unwrap_or(u64::MAX));
    let wrong = || Problem::validation(format!("`{name}` is a number of seconds, as in `{name}=30`"));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

/// Parses a time in the future. One in the past is refused, as it is surely a mistake.
pub(super) fn time_of(text: &str, name: &str, now: Time) -> Result<Time, Problem> {
    let at = text.parse::<Timestamp>().map(|at| Time(at.as_millisecond()));
    at.ok().filter(|at| *at > now).ok_or_else(|| {
        Problem::validation(format!("`{name}` is a future time like 2030-01-31T12:00:00Z, and not {text:?}"))
    })
}

/// Number of items on a page: the requested one, between 1 and the maximum.
pub(super) fn limit_of(asked: Option<usize>, usual: usize, most: usize) -> Result<usize, Problem> {
    match asked {
        None => Ok(usual),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Problem::validation(format!("`limit` is between 1 and {most}"))),
    }
}

/// Value of a header that may occur only once.
pub(super) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::validation(format!("the header {name} occurs more than once; send it once")));
    }
    let text = std::str::from_utf8(value.as_bytes());
    text.map(Some).map_err(|_| Problem::validation(format!("the header {name} is not UTF-8")))
}

/// Removes the quotes of an RFC 8941 string.
fn unquote(text: &str) -> Result<String, Problem> {
    let wrong =
        || Problem::validation("the header Idempotency-Key begins with a quote and is no quoted string");
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(wrong)?;
    let (mut plain, mut chars) = (String::with_capacity(inner.len()), inner.chars());
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(escaped @ ('"' | '\\')) => plain.push(escaped),
                _ => return Err(wrong()),
            },
            '"' => return Err(wrong()),
            char => plain.push(char),
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_string_is_read_as_the_rfc_has_it() {
        assert_eq!(unquote(r#""a b""#).unwrap(), "a b");
        assert_eq!(unquote(r#""a\"\\b""#).unwrap(), r#"a"\b"#);
        for wrong in [r#"""#, r#""a"#, r#""a"b""#, r#""a\x""#, r#""a\""#, r#""a";x=1"#] {
            assert!(unquote(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_wait_is_a_number_of_seconds() {
        assert_eq!(wait_of(Some("60")).unwrap(), Some(MAX_WAIT));
        for wrong in ["61", "99999999999999999999", "", "-1", "+1", "1.5", "soon"] {
            assert!(wait_of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
