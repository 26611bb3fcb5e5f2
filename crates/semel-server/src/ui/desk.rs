//! How pages ask the API: by a request of their reader, in this process. The answer is what any other caller would get.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

use super::Ui;
use super::gate::Visitor;
use crate::api::ProblemView;
use crate::http::{PREFIX, Problem};

/// Maximum size of an answer that a page reads, in bytes: a run with all of its steps.
const LONGEST: usize = 64 * 1024 * 1024;

/// The API has refused a call. The gate shows it as a page.
#[derive(Clone, Debug)]
pub(super) struct PageRefusal(pub(super) Box<ProblemView>);

impl From<Problem> for PageRefusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem.view()))
    }
}

impl IntoResponse for PageRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A call that changes something.
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// Path below the prefix of the API, with its query.
    pub(super) path: String,
    /// Id under which the call may be repeated; none if the path identifies it.
    pub(super) key: Option<&'a str>,
    /// Body as JSON.
    pub(super) body: String,
}

/// Answer to a call.
pub(super) struct CallAnswer<T> {
    pub(super) value: T,
    /// Whether the call had been made before.
    pub(super) replayed: bool,
}

impl<'a> Call<'a> {
    /// A `POST` with a body.
    pub(super) fn post(path: String, key: &'a str, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("a body is plain data with text keys");
        Self { method: Method::POST, path, key: Some(key).filter(|key| !key.is_empty()), body }
    }
}

impl Ui {
    /// What the API answers to this visitor's `GET`.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        path: &str,
    ) -> Result<T, PageRefusal> {
        let call = Call { method: Method::GET, path: path.to_owned(), key: None, body: String::new() };
        self.send(visitor, call).await.map(|answered| answered.value)
    }

    /// The same, but none for what does not exist, and for what the visitor may not see.
    pub(super) async fn look<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        path: &str,
    ) -> Result<Option<T>, PageRefusal> {
        match self.get(visitor, path).await {
            Ok(found) => Ok(Some(found)),
            Err(PageRefusal(problem)) if matches!(problem.status, 400 | 403 | 404) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// What the API answers to this visitor's call.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        call: Call<'_>,
    ) -> Result<CallAnswer<T>, PageRefusal> {
        let CallAnswer { value, replayed } = self.ask(visitor, call).await?;
        Ok(CallAnswer { value: read(&value)?, replayed })
    }

    /// The text of the API's answer to this visitor's `GET`.
    pub(super) async fn text(&self, visitor: &Visitor, path: &str) -> Result<Bytes, PageRefusal> {
        let call = Call { method: Method::GET, path: path.to_owned(), key: None, body: String::new() };
        self.ask(visitor, call).await.map(|answered| answered.value)
    }

    async fn ask(&self, visitor: &Visitor, call: Call<'_>) -> Result<CallAnswer<Bytes>, PageRefusal> {
        let mut request = Request::new(Body::from(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = address(&call.path)?;
        if let Some(key) = call.key {
            let key = HeaderValue::from_str(key)
                .map_err(|_| Problem::validation("the form has no valid key; reload the page"))?;
            request.headers_mut().insert("idempotency-key", key);
        }
        request.extensions_mut().insert(visitor.caller.clone());
        let response = self.api.clone().oneshot(request).await;
        let response = response.unwrap_or_else(|never| match never {});
        let status = response.status();
        let replayed = response.headers().contains_key("idempotent-replayed");
        let body = axum::body::to_bytes(response.into_body(), LONGEST).await;
        let body =
            body.map_err(|_| Problem::unavailable("the answer is too long for a page; read it by the API"))?;
        if status.is_success() {
            return Ok(CallAnswer { value: body, replayed });
        }
        Err(PageRefusal(Box::new(read(&body)?)))
    }
}

/// An answer of the API.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, PageRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        tracing::error!(%error, "a page cannot read an answer of the API");
        Problem::unavailable("the page cannot be made because of a defect; report it").into()
    })
}

fn address(path: &str) -> Result<Uri, PageRefusal> {
    let uri = format!("{PREFIX}{path}").parse::<Uri>();
    uri.map_err(|_| Problem::validation("the address is not valid; use the links of the pages").into())
}

/// `GET /w/{workspace}/api/…`: the API for the scripts of a page. Only reads are passed on.
pub(super) async fn pass(State(ui): State<Arc<Ui>>, visitor: Visitor, request: Request) -> Response {
    let place = request.uri().path_and_query().map_or("", |whole| whole.as_str());
    let rest = place.splitn(5, '/').nth(4).unwrap_or_default();
    let Ok(uri) = address(&format!("/{rest}")) else {
        return Problem::not_found("there is no such route").into_response();
    };
    let mut inner = Request::new(Body::empty());
    *inner.uri_mut() = uri;
    for name in [header::ACCEPT, header::HeaderName::from_static("last-event-id")] {
        if let Some(value) = request.headers().get(&name) {
            inner.headers_mut().insert(name, value.clone());
        }
    }
    inner.extensions_mut().insert(visitor.caller);
    ui.api.clone().oneshot(inner).await.unwrap_or_else(|never| match never {})
}
