//! Calls and answers of workers: larger bodies than elsewhere, and errors that a store's caller understands.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use semel::remote::wire::{BODY_BYTES, ErrorView};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::ProblemView;
use crate::http::Problem;
use crate::http::body::read;
use crate::http::problem::RETRY_AFTER;

/// A problem, and beside its members the error as a store would have told it.
#[derive(Debug)]
pub(super) struct Refusal {
    problem: Problem,
    /// Boxed: it is larger than what is answered if all is well.
    error: Option<Box<ErrorView>>,
}

#[derive(Serialize)]
struct RefusalView {
    #[serde(flatten)]
    problem: ProblemView,
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// A body as text.
pub(super) struct Text(axum::body::Bytes);

impl Text {
    /// What it says.
    pub(super) fn parse<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        let text = std::str::from_utf8(&self.0).expect("checked when it was read");
        serde_json::from_str(text)
            .map_err(|wrong| Problem::validation(format!("the body is not what this route takes: {wrong}")))
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

/// A body as what a route takes. The values in it are still to be checked by the route.
#[derive(Debug)]
pub(super) struct Call<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Call<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let text = Text::from_request(request, state).await?;
        Ok(Self(text.parse()?))
    }
}
