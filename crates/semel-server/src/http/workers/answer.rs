//! Requests and answers of workers: larger bodies than elsewhere, and errors in the store's terms.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use semel::remote::wire::{BODY_BYTES, ErrorView};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::access::NotAdmitted;
use crate::api::ProblemView;
use crate::http::Problem;
use crate::http::body::read;
use crate::http::problem::RETRY_AFTER;

/// A problem, with the error as a store would return it.
#[derive(Debug)]
pub(super) struct Refusal {
    problem: Problem,
    /// Boxed, because it is larger than a successful answer.
    error: Option<Box<ErrorView>>,
}

/// Why a call of a worker was refused: a problem, and the error that a store would have answered.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = WorkerProblem)]
pub(in crate::http) struct RefusalView {
    #[serde(flatten)]
    problem: ProblemView,
    /// The error in the store's terms. Absent if the call did not get as far as the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ErrorView>)]
    error: Option<Box<ErrorView>>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, error: None }
    }
}

impl From<semel::Error> for Refusal {
    fn from(error: semel::Error) -> Self {
        Self { error: Some(Box::new(ErrorView::of(&error))), problem: error.into() }
    }
}

impl From<NotAdmitted> for Refusal {
    fn from(refused: NotAdmitted) -> Self {
        match refused {
            NotAdmitted::Store(error) => error.into(),
            full => {
                let text = full.to_string();
                Self { error: Some(Box::new(ErrorView::RateLimit(text))), problem: full.into() }
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status()).expect("the list has valid statuses");
        let view = RefusalView { problem: self.problem.view(), error: self.error };
        let mut response = respond(status, "application/problem+json", &view);
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

/// An answer as JSON.
#[derive(Debug)]
pub(super) struct Told<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Told<T> {
    fn into_response(self) -> Response {
        respond(StatusCode::OK, "application/json", &self.0)
    }
}

fn respond(status: StatusCode, kind: &'static str, body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).expect("what is answered is plain data with text keys");
    let mut response = (status, body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A request body as text.
pub(super) struct Text(axum::body::Bytes);

impl Text {
    /// Parses the body as JSON.
    pub(super) fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        let text = std::str::from_utf8(&self.0).expect("checked when it was read");
        serde_json::from_str(text)
            .map_err(|wrong| Problem::validation(format!("the body is not valid for this route: {wrong}")))
    }
}

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let bytes = read(request, BODY_BYTES).await?;
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(Problem::validation("the body is not UTF-8; send JSON as UTF-8").into()),
        }
    }
}

/// A parsed request body. The route still has to check the values in it.
#[derive(Debug)]
pub(super) struct CallBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for CallBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let text = Text::from_request(request, state).await?;
        Ok(Self(text.parse()?))
    }
}
