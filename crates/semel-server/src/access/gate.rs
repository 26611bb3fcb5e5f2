//! The gate before the routes: who calls is found out once, here; calls are limited, and those of administrators noted.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Caller;
use super::audit::{self, Act};
use crate::app::App;
use crate::http::{PREFIX, Problem};
use crate::serve::CalledIn;

/// Whoever is known may pass, and the routes find them in the request. What is not the API needs nobody to be known.
pub async fn gate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/') && rest != "/openapi.json") {
        return next.run(request).await;
    }
    if app.stop.is_ordered() {
        return Problem::unavailable("this server is stopping; repeat the call, another one takes it")
            .into_response();
    }
    let caller = match app.access.caller(&app, request.headers()).await {
        Ok(caller) => caller,
        Err(problem) => return refuse(problem, None),
    };
    if let Err(wait) = app.access.admit(&caller, app.clock.now()) {
        let problem =
            Problem::rate_limited("this workspace makes too many calls; slow down, and repeat the call");
        return refuse(problem, Some(wait));
    }
    request.extensions_mut().insert(caller.clone());
    let (call, subject) = described(&request);
    let workspace = caller.workspace;
    let mut response = match request.method() == Method::GET {
        true => next.run(request).await,
        // A call that claims for somebody who has gone would hold what nobody knows of; it ends with its connection.
        false if subject.starts_with("/workers") => {
            noted(app, caller, call, subject, next.run(request)).await
        }
        // Apart from the connection: whoever hangs up when it is done is noted all the same.
        false => tokio::spawn(async move { noted(app, caller, call, subject, next.run(request)).await })
            .await
            .unwrap_or_else(|_| {
                Problem::unavailable("this call broke off; look before you repeat it").into_response()
            }),
    };
    response.extensions_mut().insert(CalledIn(workspace));
    response
}

/// Answers, and notes what an administrator has done.
async fn noted(
    app: Arc<App>,
    caller: Caller,
    call: String,
    subject: String,
    answer: impl Future<Output = Response>,
) -> Response {
    let response = answer.await;
    if caller.administers() {
        let (at, by, status) = (app.clock.now(), caller.title(), response.status().as_u16());
        let workspace = response.extensions().get::<Concerns>().map_or(caller.workspace, |about| about.0);
        audit::note(&app, workspace, &Act { at, by, call, subject, status }).await;
    }
    response
}

/// Which workspace root's call was about, left on the answer: there it belongs in the audit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Concerns(pub(crate) semel::id::WorkspaceId);

/// What is called, and on what.
fn described(request: &Request) -> (String, String) {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let path = request.uri().path();
    (format!("{} {route}", request.method()), path.strip_prefix(PREFIX).unwrap_or(path).to_owned())
}

fn refuse(problem: Problem, wait: Option<Duration>) -> Response {
    let mut response = problem.into_response();
    let status = response.status().as_u16();
    let headers = response.headers_mut();
    if status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == 429 {
        let seconds = wait.map_or(1, |wait| wait.as_secs_f64().ceil().max(1.0) as u64);
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
