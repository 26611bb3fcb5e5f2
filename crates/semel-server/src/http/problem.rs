//! Errors of requests, as `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use semel::{Error, ErrorCode};

use crate::api::{DocumentProblem, ProblemView};

/// Default of `Retry-After` in seconds, for a caller with too many calls in progress.
pub(super) const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request was refused.
#[derive(Debug)]
pub struct Problem {
    code: ErrorCode,
    detail: String,
    owner: Option<String>,
    pointers: Vec<String>,
    problems: Vec<DocumentProblem>,
}

impl Problem {
    fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), owner: None, pointers: Vec::new(), problems: Vec::new() }
    }

    /// Names places in the request.
    #[must_use]
    pub fn at(self, pointers: Vec<String>) -> Self {
        Self { pointers, ..self }
    }

    /// A document is not acceptable: its problems, the worst first.
    pub fn document(problems: Vec<DocumentProblem>) -> Self {
        let first = problems
            .first()
            .map_or_else(String::new, |problem| format!(" is in line {}: {}", problem.line, problem.message));
        let detail = match problems.len() {
            1 => format!("the definition is not accepted; the problem{first}"),
            count => format!("the definition is not accepted; the first of {count} `problems`{first}"),
        };
        Self { problems, ..Self::new(ErrorCode::Validation, detail) }
    }

    /// There is no such definition.
    pub fn no_definition(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::DefinitionNotFound, detail)
    }

    /// The label of a definition belongs to another version.
    pub fn version_taken(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::VersionTaken, detail)
    }

    /// An input or an answer is not as its schema says.
    pub fn input_invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InputInvalid, detail)
    }

    /// The state does not allow the call.
    pub fn impossible(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidTransition, detail)
    }

    /// The request is not acceptable.
    pub fn validation(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Validation, detail)
    }

    /// The request has no valid credential.
    pub fn auth(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Auth, detail)
    }

    /// The credential lacks the permission.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Forbidden, detail)
    }

    /// The object does not exist in this workspace.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, detail)
    }

    /// The run has no open hook for the delivery.
    pub fn hook_not_found(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::HookNotFound, detail)
    }

    /// Another call was first.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Concurrency, detail)
    }

    /// The key belongs to another request.
    pub fn key_reused(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::KeyReused, detail)
    }

    /// The approval has another decision, or takes none any more.
    pub fn already_decided(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::AlreadyDecided, detail)
    }

    /// The run that the call is about has ended.
    pub fn run_finished(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RunFinished, detail)
    }

    /// The route does not have this method.
    pub fn method_not_allowed(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::MethodNotAllowed, detail)
    }

    /// The payload is too large.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::PayloadTooLarge, detail)
    }

    /// The caller makes too many calls.
    pub fn rate_limited(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::RateLimit, detail)
    }

    /// The server cannot answer now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, detail)
    }

    /// Error code of the problem.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// HTTP status of the problem.
    pub fn status(&self) -> u16 {
        self.code.status()
    }

    /// The problem in its form on the wire.
    pub fn view(&self) -> ProblemView {
        ProblemView {
            kind: format!("/errors/{}", self.code),
            title: self.code.title().to_owned(),
            status: self.status(),
            detail: self.detail.clone(),
            code: self.code.to_string(),
            owner: self.owner.clone(),
            pointers: self.pointers.clone(),
            problems: self.problems.clone(),
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
            // Messages of a database may name hosts and files, so they go to the log only.
            Error::Unavailable(_) | Error::Corrupt { .. } | Error::Open { .. } => {
                tracing::error!(%error, "a request could not be answered");
                "the store cannot answer now; nothing was changed, try again".to_owned()
            }
            Error::Unknown(_) => {
                tracing::error!(%error, "it is unknown whether a write took place");
                "it is unknown whether the write took place; repeat the call with the same key".to_owned()
            }
            _ => error.to_string(),
        };
        Self { code: error.kind(), detail, owner, pointers, problems: Vec::new() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status()).expect("every code has a valid status");
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
