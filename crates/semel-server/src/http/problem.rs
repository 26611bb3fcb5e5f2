//! What went wrong, as `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use semel::Error;

use crate::api::ProblemView;

/// The codes, each with its status and its name. Every one has a page in docs/errors.
pub const CODES: [(&str, u16, &str); 15] = [
    ("VALIDATION_ERROR", 400, "The request is not acceptable"),
    ("AUTH_ERROR", 401, "No valid credential"),
    ("FORBIDDEN", 403, "Not allowed"),
    ("NOT_FOUND", 404, "Not found"),
    ("HOOK_NOT_FOUND", 404, "No open hook has this token"),
    ("METHOD_NOT_ALLOWED", 405, "The route has no such method"),
    ("CONCURRENCY_ERROR", 409, "Somebody else was first"),
    ("DUPLICATE_RUN", 409, "A run exists under this key"),
    ("INVALID_TRANSITION", 409, "The state does not allow it"),
    ("RUN_FINISHED", 409, "The run has ended"),
    ("PAYLOAD_TOO_LARGE", 413, "Too large"),
    ("KEY_REUSED", 422, "The key stands for another request"),
    ("INBOX_FULL", 429, "The run has too many messages"),
    ("RATE_LIMIT_ERROR", 429, "Too many calls"),
    ("UNAVAILABLE", 503, "Not available now"),
];

/// In how many seconds a caller that has too much under way may try again, if nothing better is known.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// What went wrong with a request.
#[derive(Debug)]
pub struct Problem {
    code: &'static str,
    detail: String,
    owner: Option<String>,
    pointers: Vec<String>,
}

impl Problem {
    fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), owner: None, pointers: Vec::new() }
    }

    /// The request is not acceptable.
    pub fn validation(detail: impl Into<String>) -> Self {
        Self::new("VALIDATION_ERROR", detail)
    }

    /// There is no valid credential.
    pub fn auth(detail: impl Into<String>) -> Self {
        Self::new("AUTH_ERROR", detail)
    }

    /// The credential does not allow it.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new("FORBIDDEN", detail)
    }

    /// There is no such thing in this workspace.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new("NOT_FOUND", detail)
    }

    /// Somebody else was first.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new("CONCURRENCY_ERROR", detail)
    }

    /// The key stands for another request.
    pub fn key_reused(detail: impl Into<String>) -> Self {
        Self::new("KEY_REUSED", detail)
    }

    /// The route has no such method.
    pub fn method_not_allowed(detail: impl Into<String>) -> Self {
        Self::new("METHOD_NOT_ALLOWED", detail)
    }

    /// Too large.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new("PAYLOAD_TOO_LARGE", detail)
    }

    /// Too many calls.
    pub fn rate_limited(detail: impl Into<String>) -> Self {
        Self::new("RATE_LIMIT_ERROR", detail)
    }

    /// Not now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new("UNAVAILABLE", detail)
    }

    /// Its code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    fn known(&self) -> (u16, &'static str) {
        let known = CODES.iter().find(|(code, ..)| *code == self.code);
        known.map(|(_, status, title)| (*status, *title)).expect("every code is in the list")
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.known().0
    }

    /// As it travels.
    pub fn view(&self) -> ProblemView {
        let (status, title) = self.known();
        ProblemView {
            kind: format!("/errors/{}", self.code),
            title: title.to_owned(),
            status,
            detail: self.detail.clone(),
            code: self.code.to_owned(),
            owner: self.owner.clone(),
            pointers: self.pointers.clone(),
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (owner, pointers) = match &error {
            Error::KeyReused { owner, pointers } => (Some(owner.to_string()), pointers.clone()),
            Error::CallReused { owner, .. } | Error::DuplicateRun { owner, .. } => {
                (Some(owner.to_string()), Vec::new())
            }
            _ => (None, Vec::new()),
        };
        let detail = match &error {
            // What a database says may name hosts and files: that is for the log.
            Error::Unavailable(_) | Error::Corrupt { .. } | Error::Open { .. } => {
                tracing::error!(%error, "a call could not be answered");
                "the store cannot answer now; nothing was changed, try again".to_owned()
            }
            Error::Unknown(_) => {
                tracing::error!(%error, "it is unknown whether a write took place");
                "it is unknown whether the write took place; repeat the call with the same key".to_owned()
            }
            _ => error.to_string(),
        };
        Self { code: error.code(), detail, owner, pointers }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).expect("the list has valid statuses");
        let body = serde_json::to_vec(&self.view()).expect("a problem is plain data");
        let mut response = (status, body).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
