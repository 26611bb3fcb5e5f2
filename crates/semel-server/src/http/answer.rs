//! Successful answers: JSON, with headers about the call.

use axum::http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Header of an answer to a repeated call.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Header of an answer that has waited as `Prefer` asked.
pub(super) const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Successful answer of a route.
#[derive(Debug)]
pub(super) struct Answer<T> {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    value: T,
}

impl<T> Answer<T> {
    /// Answer with status 200.
    pub(super) fn ok(value: T) -> Self {
        Self { status: StatusCode::OK, headers: Vec::new(), value }
    }

    /// Status 201 if this call created a run, and the run's location in any case.
    pub(super) fn made(mut self, created: bool, run: &str) -> Self {
        self.status = if created { StatusCode::CREATED } else { StatusCode::OK };
        self.with(LOCATION, &format!("{}/workflow-runs/{run}", super::PREFIX))
    }

    /// Status 201 if this call created something.
    pub(super) fn created(mut self, created: bool) -> Self {
        self.status = if created { StatusCode::CREATED } else { StatusCode::OK };
        self
    }

    /// Marks the answer if the call was made before.
    pub(super) fn replayed(self, replayed: bool) -> Self {
        if replayed { self.with(REPLAYED, "true") } else { self }
    }

    /// Adds a header to the answer.
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("headers are made of ids and numbers");
        self.headers.push((name, value));
        self
    }
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.value).expect("answers are plain data with text keys");
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers);
        response
    }
}
