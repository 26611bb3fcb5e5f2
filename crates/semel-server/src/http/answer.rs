//! Answers that are no problem: JSON, with the headers that say how it came about.

use axum::http::header::{CONTENT_TYPE, HeaderName, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// On an answer that had been given before.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// On an answer that was waited for.
pub(super) const APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What a route answers.
#[derive(Debug)]
pub(super) struct Answer<T> {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    value: T,
}

impl<T> Answer<T> {
    /// 200.
    pub(super) fn ok(value: T) -> Self {
        Self { status: StatusCode::OK, headers: Vec::new(), value }
    }

    /// 201 if a run is there because of this call, and where it is in any case.
    pub(super) fn made(mut self, created: bool, run: &str) -> Self {
        self.status = if created { StatusCode::CREATED } else { StatusCode::OK };
        self.with(LOCATION, &format!("{}/workflow-runs/{run}", super::PREFIX))
    }

    /// 201 if something is there because of this call.
    pub(super) fn created(mut self, created: bool) -> Self {
        self.status = if created { StatusCode::CREATED } else { StatusCode::OK };
        self
    }

    /// The same, marked if it answers a call that was made before.
    pub(super) fn replayed(self, replayed: bool) -> Self {
        if replayed { self.with(REPLAYED, "true") } else { self }
    }

    /// The same with a header.
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
