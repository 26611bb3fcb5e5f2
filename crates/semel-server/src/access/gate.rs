//! The gate before the routes: callers are authenticated once, here; calls are limited, and administrative ones are audited.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use semel::id::WorkspaceId;
use semel::store::Origin;

use super::Caller;
use super::audit::{self, Act};
use crate::app::App;
use crate::http::{PREFIX, Problem};
use crate::serve::{CalledIn, RequestId};

/// Status in the audit of a call whose caller disconnected before the answer, as proxies report it.
const UNANSWERED: u16 = 499;

/// Paths of the API without an API key in a header: descriptions, which tools and editors fetch, and the session, which
/// has a credential of its own.
const OPEN: [&str; 3] = ["/openapi.json", "/definition.schema.json", "/session"];

/// Authenticates the caller and puts it into the request for the routes. Paths outside the API need no authentication.
pub async fn gate(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if !path.strip_prefix(PREFIX).is_some_and(|rest| rest.starts_with('/') && !OPEN.contains(&rest)) {
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
    request.extensions_mut().insert(caller);
    admit(State(app), request, next).await
}

/// Counts a call of an authenticated caller, who is in the request; bounds its body, and audits it if it is administrative.
pub(crate) async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return refuse(Problem::auth("no caller was authenticated; send an API key"), None);
    };
    if let Err(wait) = app.access.admit(&caller, app.clock.now()) {
        let problem =
            Problem::rate_limited("this workspace makes too many calls; slow down, and repeat the call");
        return refuse(problem, Some(wait));
    }
    // Held until the answer: the decoded body is in memory as long.
    let intake = app.bounds.intake(caller.workspace);
    request.extensions_mut().insert(intake.clone());
    let noting = (request.method() != Method::GET).then(|| Noting::new(app, &caller, &request));
    let request_id = request.extensions().get::<RequestId>().map(|id| id.0.clone());
    let origin = Origin { by: Some(caller.name.clone()), request_id };
    let mut response = origin.around(next.run(request)).await;
    drop(intake);
    if let Some(noting) = noting {
        noting.answered(&mut response).await;
    }
    response.extensions_mut().insert(CalledIn(caller.workspace));
    response
}

/// Audits an administrative call, also if its caller disconnects before the answer.
struct Noting {
    app: Arc<App>,
    caller: Caller,
    /// None after the call was recorded.
    act: Option<Act>,
}

impl Noting {
    fn new(app: Arc<App>, caller: &Caller, request: &Request) -> Self {
        let (call, subject) = described(request);
        let act = Act { at: app.clock.now(), by: caller.title(), call, subject, status: UNANSWERED };
        Self { app, caller: caller.clone(), act: Some(act) }
    }

    async fn answered(mut self, response: &mut Response) {
        let (at, status) = (self.app.clock.now(), response.status().as_u16());
        let about = response.extensions().get::<Concerns>().map(|about| about.0);
        let workspace = about.unwrap_or(self.caller.workspace);
        if let (Some(act), true) = (&self.act, self.caller.administers()) {
            let subject = response.extensions().get::<ActsOn>().map(|on| on.0.clone());
            let subject = subject.unwrap_or_else(|| act.subject.clone());
            audit::note(&self.app, workspace, &Act { at, subject, status, ..act.clone() }).await;
        }
        self.act = None;
    }
}

impl Drop for Noting {
    /// The call was dropped, and may have taken place.
    fn drop(&mut self) {
        if let (Some(act), true) = (self.act.take(), self.caller.administers()) {
            let (app, workspace) = (self.app.clone(), self.caller.workspace);
            tokio::spawn(async move { audit::note(&app, workspace, &act).await });
        }
    }
}

/// The workspace that a call of root was about, attached to the answer: its audit gets the entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Concerns(pub(crate) WorkspaceId);

/// The object of a call, for the audit. Attached to the answer if the path does not say it.
#[derive(Clone, Debug)]
pub(crate) struct ActsOn(pub(crate) String);

/// Method, route and path of the call.
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

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use axum::{Extension, Router};
    use semel::clock::SystemClock;
    use semel::store::memory::MemoryStore;
    use tower::ServiceExt;

    use super::*;
    use crate::api::Permission;

    /// A route that begins to act and never answers.
    async fn acts(Extension(caller): Extension<Caller>) {
        caller.may(Permission::Admin).unwrap();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn an_administrator_who_hangs_up_is_in_the_audit() {
        let clock = Arc::new(SystemClock::new());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let app = Arc::new(App::open(store, clock));
        let router =
            Router::new().route("/api/v1/acts", post(acts)).layer(from_fn_with_state(app.clone(), gate));
        let request = Request::post("/api/v1/acts").body(Body::empty()).unwrap();
        let mut call = Box::pin(router.oneshot(request));
        let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        drop(call);
        // The entry is written by a task of its own, which runs before this one continues.
        tokio::task::yield_now().await;
        let (acts, _) = audit::page(&app, WorkspaceId::DEFAULT, None, 10).await.unwrap();
        let noted: Vec<_> = acts.iter().map(|act| (act.subject.as_str(), act.status)).collect();
        assert_eq!(noted, [("/acts", UNANSWERED)]);
    }
}
