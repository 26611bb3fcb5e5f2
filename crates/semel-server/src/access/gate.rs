//! The gate before the routes: who calls is found out once, here; calls are limited, and those of administrators noted.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use semel::id::WorkspaceId;

use super::Caller;
use super::audit::{self, Act};
use crate::app::App;
use crate::http::{PREFIX, Problem};
use crate::serve::CalledIn;

/// The status of a call whose answer nobody waited for, in the audit: as proxies say it.
const UNANSWERED: u16 = 499;

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
    // Kept until the answer: what was made of the body is in memory as long.
    let intake = app.bounds.intake(caller.workspace);
    request.extensions_mut().insert(intake.clone());
    let noting = (request.method() != Method::GET).then(|| Noting::new(app, &caller, &request));
    let mut response = next.run(request).await;
    drop(intake);
    if let Some(noting) = noting {
        let about = response.extensions().get::<Concerns>().map(|about| about.0);
        noting.answered(response.status().as_u16(), about).await;
    }
    response.extensions_mut().insert(CalledIn(caller.workspace));
    response
}

/// Notes what an administrator does; also if they hang up before they are answered.
struct Noting {
    app: Arc<App>,
    caller: Caller,
    /// Gone when it is noted.
    act: Option<Act>,
}

impl Noting {
    fn new(app: Arc<App>, caller: &Caller, request: &Request) -> Self {
        let (call, subject) = described(request);
        let act = Act { at: app.clock.now(), by: caller.title(), call, subject, status: UNANSWERED };
        Self { app, caller: caller.clone(), act: Some(act) }
    }

    async fn answered(mut self, status: u16, about: Option<WorkspaceId>) {
        let (at, workspace) = (self.app.clock.now(), about.unwrap_or(self.caller.workspace));
        if let (Some(act), true) = (&self.act, self.caller.administers()) {
            audit::note(&self.app, workspace, &Act { at, status, ..act.clone() }).await;
        }
        self.act = None;
    }
}

impl Drop for Noting {
    /// The call was broken off, and what it asked for may have taken place.
    fn drop(&mut self) {
        if let (Some(act), true) = (self.act.take(), self.caller.administers()) {
            let (app, workspace) = (self.app.clone(), self.caller.workspace);
            tokio::spawn(async move { audit::note(&app, workspace, &act).await });
        }
    }
}

/// Which workspace root's call was about, left on the answer: there it belongs in the audit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Concerns(pub(crate) WorkspaceId);

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

    /// It has what it needs to act, and is never answered.
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
        // The note is written by a task of its own, which has its turn before this one comes again.
        tokio::task::yield_now().await;
        let (acts, _) = audit::page(&app, WorkspaceId::DEFAULT, None, 10).await.unwrap();
        let noted: Vec<_> = acts.iter().map(|act| (act.subject.as_str(), act.status)).collect();
        assert_eq!(noted, [("/acts", UNANSWERED)]);
    }
}
