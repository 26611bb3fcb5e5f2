//! A server on a loopback port of this process. Who calls is told by the token: a workspace, and what it may do there.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use semel::clock::Clock;
use semel::error::Result;
use semel::id::WorkspaceId;
use semel::remote::{Options, RemoteStore};
use semel::store::Store;
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use semel_server::http::{Problem, router};
use semel_server::serve::Stop;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// A server that ends with its value.
pub(super) struct ServedSite {
    address: SocketAddr,
    pub(super) stop: Stop,
    serving: AbortHandle,
}

impl Drop for ServedSite {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl ServedSite {
    pub(super) async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self::of(App::open(store, clock)).await
    }

    pub(super) async fn of(app: App) -> Self {
        let app = Arc::new(app);
        let stop = app.stop.clone();
        let routes = router(app).layer(from_fn(known));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await }).abort_handle();
        Self { address, stop, serving }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A store of this server in a workspace.
    pub(super) async fn remote(&self, workspace: WorkspaceId) -> Result<RemoteStore> {
        RemoteStore::open(Options { token: Some(token(workspace, "admin")), ..Options::new(self.url()) })
            .await
    }
}

/// A token that this server believes: `ws_….permission`, or `ws_….permission.name` for a key of that name. Several
/// permissions are joined by `+`.
pub(super) fn token(workspace: WorkspaceId, permission: &str) -> String {
    format!("{workspace}.{permission}")
}

async fn known(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let parts = token.and_then(|token| token.strip_prefix("Bearer ")).and_then(|token| token.split_once('.'));
    let Some((workspace, permissions)) = parts else {
        return Problem::auth("no token").into_response();
    };
    let (permissions, name) = permissions.split_once('.').unwrap_or((permissions, "test"));
    let permission = |name| match name {
        "admin" => Permission::Admin,
        "worker" => Permission::Worker,
        "start" => Permission::Start,
        _ => Permission::Read,
    };
    let permissions = permissions.split('+').map(permission).collect();
    let workspace = workspace.parse().expect("tests use proper workspaces");
    let caller = Caller::new(workspace, name, permissions);
    request.extensions_mut().insert(caller);
    next.run(request).await
}
