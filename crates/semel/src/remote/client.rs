//! One call to the server, and what its answer, or the lack of one, means.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{ErrorView, PREFIX};
use super::{Options, tls};
use crate::error::{Error, Result, Source};

/// Longer than that no connection takes to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// What a call does, and so what it means that it was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It only reads: nothing has changed.
    Reads,
    /// It writes: nobody knows whether it has.
    Writes,
}

/// The way to the server.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    timeout: Duration,
}

/// A problem as far as it is understood here; any proxy may have written it.
#[derive(serde::Deserialize)]
struct ProblemBody {
    /// What the server calls it. A proxy's problem has none that is known here.
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    error: Option<ErrorView>,
}

impl Client {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let wrong =
            |why: String| Error::Validation(format!("{why}; give a server as in http://127.0.0.1:7700"));
        let url =
            reqwest::Url::parse(&options.url).map_err(|e| wrong(format!("the address is no URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong(format!("{}:// is no server of Semel", url.scheme())));
        }
        let open = |source: Source| Error::Open { what: "the connection to the server".to_owned(), source };
        let mut headers = reqwest::header::HeaderMap::new();
        if let Some(token) = &options.token {
            let mut value = reqwest::header::HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Error::Validation("the token has characters that no token has".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        let secure = url.scheme() == "https";
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .tls_backend_preconfigured(tls::config(secure, options.ca.as_deref())?)
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            // What is asked of this server is answered by it, and the token goes nowhere else.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|e| open(e.into()))?;
        let base = format!("{}{PREFIX}", options.url.trim_end_matches('/'));
        Ok(Self { http, base, timeout: options.timeout })
    }

    /// A call with a value as its body.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        does: Does,
    ) -> Result<A> {
        Ok(self.call_sized(path, body, does).await?.0)
    }

    /// The same, and how many bytes the answer had.
    pub(super) async fn call_sized<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        does: Does,
    ) -> Result<(A, usize)> {
        let body = serde_json::to_vec(body).map_err(|e| Error::Validation(e.to_string()))?;
        self.post_sized(path, body, does).await
    }

    /// A call with a body that is JSON already.
    pub(super) async fn post<A: DeserializeOwned>(&self, path: &str, body: Vec<u8>, does: Does) -> Result<A> {
        Ok(self.post_sized(path, body, does).await?.0)
    }

    async fn post_sized<A: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
        does: Does,
    ) -> Result<(A, usize)> {
        let request = self
            .http
            .post(format!("{}{path}", self.base))
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .timeout(self.timeout)
            .body(body);
        let response = request.send().await.map_err(|error| unanswered(error, does))?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(|error| unanswered(error, does))?;
        if !status.is_success() {
            return Err(refused(status, &bytes, does));
        }
        let answer = serde_json::from_slice(&bytes).map_err(|error| untold(error.into(), does))?;
        Ok((answer, bytes.len()))
    }

    /// A stream that goes on until somebody ends it.
    pub(super) async fn stream(&self, path: &str) -> Result<Response> {
        let request = self.http.get(format!("{}{path}", self.base)).send();
        let in_time = tokio::time::timeout(self.timeout, request).await;
        let late = |_| Error::Unavailable("the server does not answer".into());
        let response = in_time.map_err(late)?.map_err(|error| unanswered(error, Does::Reads))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|error| unanswered(error, Does::Reads))?;
        Err(refused(status, &bytes, Does::Reads))
    }
}

fn unanswered(error: reqwest::Error, does: Does) -> Error {
    // The address is the caller's own affair, and may have a password in it.
    let (connect, error) = (error.is_connect(), error.without_url());
    if connect { Error::Unavailable(error.into()) } else { untold(error.into(), does) }
}

fn untold(source: Source, does: Does) -> Error {
    match does {
        Does::Reads => Error::Unavailable(source),
        Does::Writes => Error::Unknown(source),
    }
}

fn refused(status: StatusCode, body: &[u8], does: Does) -> Error {
    let problem = serde_json::from_slice::<ProblemBody>(body).ok();
    let (code, said) = match problem {
        Some(ProblemBody { error: Some(view), .. }) => return view.into(),
        Some(ProblemBody { code, detail, .. }) => (code, detail),
        None => (None, None),
    };
    let said = said.unwrap_or_else(|| format!("the server answered with {status}"));
    match (status, code.as_deref()) {
        // The call was not looked at. A credential may be replaced and a limit may pass: the same call may succeed then.
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            Error::Unavailable(said.into())
        }
        // The server itself refuses the call.
        (_, Some("VALIDATION_ERROR" | "PAYLOAD_TOO_LARGE")) => Error::Validation(said),
        // Not the server has answered, but something before it, which knows nothing of runs; or the server is of another
        // version and has no such route.
        _ => untold(said.into(), does),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_says_nothing_leaves_a_write_unknown() {
        let code = |status, body: &str, does| match refused(status, body.as_bytes(), does) {
            Error::Unknown(_) => "UNKNOWN",
            error => error.code(),
        };
        let gateway = StatusCode::BAD_GATEWAY;
        assert_eq!(code(gateway, "<html>", Does::Writes), "UNKNOWN");
        assert_eq!(code(gateway, "<html>", Does::Reads), "UNAVAILABLE");
        assert_eq!(code(StatusCode::NOT_FOUND, "<html>", Does::Writes), "UNKNOWN", "a proxy");
        assert_eq!(
            code(StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"unavailable"}"#, Does::Writes),
            "UNAVAILABLE"
        );
        assert_eq!(code(StatusCode::TOO_MANY_REQUESTS, "{}", Does::Writes), "UNAVAILABLE");
    }

    #[test]
    fn only_a_refusal_by_the_server_itself_is_final() {
        let table: [(StatusCode, &str, &str); 8] = [
            (StatusCode::BAD_REQUEST, r#"{"detail":"no","code":"VALIDATION_ERROR"}"#, "VALIDATION_ERROR"),
            (
                StatusCode::PAYLOAD_TOO_LARGE,
                r#"{"detail":"no","code":"PAYLOAD_TOO_LARGE"}"#,
                "VALIDATION_ERROR",
            ),
            (StatusCode::BAD_REQUEST, r#"{"detail":"no"}"#, "UNKNOWN"),
            (StatusCode::PAYLOAD_TOO_LARGE, r#"{"detail":"no"}"#, "UNKNOWN"),
            (StatusCode::NOT_FOUND, r#"{"detail":"no","code":"NOT_FOUND"}"#, "UNKNOWN"),
            (StatusCode::UNAUTHORIZED, r#"{"detail":"no key","code":"AUTH_ERROR"}"#, "UNAVAILABLE"),
            (StatusCode::FORBIDDEN, r#"{"detail":"no","code":"FORBIDDEN"}"#, "UNAVAILABLE"),
            (StatusCode::FORBIDDEN, "<html>", "UNAVAILABLE"),
        ];
        for (status, body, expected) in table {
            let told = match refused(status, body.as_bytes(), Does::Writes) {
                Error::Unknown(_) => "UNKNOWN",
                error => error.code(),
            };
            assert_eq!(told, expected, "{status} {body}");
        }
    }

    #[test]
    fn an_address_that_is_no_server_is_refused_before_anything_is_sent() {
        for url in ["", "semel.db", "ftp://a", "http://"] {
            let refused = Client::new(&Options { token: None, ..Options::new(url) });
            assert_eq!(refused.err().map(|error| error.code()), Some("VALIDATION_ERROR"), "{url}");
        }
    }
}
