//! One call to the server, and what its answer, or a missing answer, means.

use std::path::Path;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::wire::{ErrorView, PREFIX, PROTOCOL, PROTOCOL_HEADER};
use super::{Options, tls};
use crate::error::{Error, ErrorCode, Result, Source};

/// Maximum time to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// Whether a call may change something: that decides what a lost answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// It only reads: nothing has changed.
    Reads,
    /// The call writes: without an answer its outcome is unknown.
    Writes,
}

/// HTTP client of one server.
pub(super) struct HttpClient {
    http: reqwest::Client,
    base: String,
    timeout: Duration,
}

/// The fields of a problem that are read. It may have been written by a proxy.
#[derive(serde::Deserialize)]
struct ProblemBody {
    /// Error code of the server. A proxy writes none, or an unknown one.
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    error: Option<ErrorView>,
}

impl HttpClient {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let wrong =
            |why: String| Error::Validation(format!("{why}; give a server as in http://127.0.0.1:7700"));
        let url = reqwest::Url::parse(&options.url).map_err(|e| wrong(format!("this is not a URL: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong(format!("{}:// is not supported", url.scheme())));
        }
        let open = |source: Source| Error::Open { what: "the connection to the server".to_owned(), source };
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert(PROTOCOL_HEADER, reqwest::header::HeaderValue::from_static(PROTOCOL));
        if let Some(token) = &options.token {
            let mut value = reqwest::header::HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Error::Validation("the token contains invalid characters".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        let secure = url.scheme() == "https";
        let ca = match (&options.ca, &options.ca_file) {
            (None, Some(path)) => Some(read(path)?),
            (ca, _) => ca.clone(),
        };
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .tls_backend_preconfigured(tls::config(secure, ca.as_deref())?)
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            // The token is for this server only.
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

    /// Like `call`, with the length of the answer in bytes.
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

    /// A stream that goes on until the server or the caller ends it.
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

/// The certificates of a file.
fn read(path: &Path) -> Result<Vec<u8>> {
    let wrong =
        |error| Error::Validation(format!("the certificates in {} cannot be read: {error}", path.display()));
    std::fs::read(path).map_err(wrong)
}

fn unanswered(error: reqwest::Error, does: Does) -> Error {
    // The URL may contain a password.
    let (connect, error) = (error.is_connect(), error.without_url());
    if let Some(why) = tls::certificate_problem(&error) {
        return Error::Unavailable(format!("the certificate of the server is not trusted: {why}").into());
    }
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
    match (status, code.as_deref().and_then(ErrorCode::from_text)) {
        // The call was not executed, and may succeed with another credential or later.
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            Error::Unavailable(said.into())
        }
        // The server has examined and refused the call.
        (_, Some(ErrorCode::Validation | ErrorCode::PayloadTooLarge)) => Error::Validation(said),
        // Answered by a proxy, or by a server of another version that lacks the route.
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
            let refused = HttpClient::new(&Options { token: None, ..Options::new(url) });
            assert_eq!(refused.err().map(|error| error.code()), Some("VALIDATION_ERROR"), "{url}");
        }
    }
}
