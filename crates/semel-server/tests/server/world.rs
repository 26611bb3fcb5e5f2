//! A server on a store, and a client that calls it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{Extension, Router};
use libtest_mimic::Trial;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use semel::clock::SystemClock;
use semel::engine::Builder;
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::store::postgres::{PostgresOptions, PostgresStore};
use semel::store::sqlite::{SqliteOptions, SqliteStore};
use semel::{Ctx, Engine};
use semel_server::access::Caller;
use semel_server::app::App;
use semel_server::http;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

pub(crate) type Doing = Pin<Box<dyn Future<Output = ()>>>;

/// A test that runs on every store.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(World) -> Doing,
}

/// The cases of a module, by the names of their functions.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) fn cases() -> Vec<crate::world::Case> {
            let area = module_path!().rsplit("::").next().expect("a module has a name");
            vec![$(crate::world::Case {
                name: Box::leak(format!("{area}::{}", stringify!($name)).into_boxed_str()),
                run: |world| Box::pin($name(world)),
            }),+]
        }
    };
}
pub(crate) use cases;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
    Postgres,
}

/// All stores, with their names in those of tests.
const STORES: [(Kind, &str); 3] =
    [(Kind::Memory, "memory"), (Kind::Sqlite, "sqlite"), (Kind::Postgres, "postgres")];

/// One trial per store.
pub(crate) fn on_every_store(case: Case) -> Vec<Trial> {
    trials_on(&STORES, case)
}

/// One trial per store that outlives its process.
pub(crate) fn on_databases(case: Case) -> Vec<Trial> {
    trials_on(&STORES[1..], case)
}

fn trials_on(stores: &[(Kind, &str)], case: Case) -> Vec<Trial> {
    let trial = |(kind, name): &(Kind, &str)| {
        let kind = *kind;
        Trial::test(format!("{name}::{}", case.name), move || {
            runtime().block_on(async { (case.run)(World::on(kind).await).await });
            Ok(())
        })
    };
    stores.iter().map(trial).collect()
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().expect("a runtime can be made")
}

/// A server, and the store behind it.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Api,
    _folder: Option<TempDir>,
}

impl World {
    /// A server on a new store.
    pub(crate) async fn on(kind: Kind) -> Self {
        let (mut folder, clock) = (None, Arc::new(SystemClock::new()));
        let store: Arc<dyn Store> = match kind {
            Kind::Memory => Arc::new(MemoryStore::new(clock)),
            Kind::Sqlite => {
                let place = folder.insert(TempDir::new().expect("a folder for the file"));
                let options = SqliteOptions::new(place.path().join("semel.db"));
                Arc::new(SqliteStore::open(options).await.expect("a new file can be opened"))
            }
            Kind::Postgres => postgres(&fresh_schema()).await,
        };
        let client = Api::serve(store.clone()).await;
        Self { store, client, _folder: folder }
    }

    /// An engine beside the server, for workflows in Rust.
    pub(crate) async fn engine(&self, build: impl FnOnce(Builder) -> Builder) -> Engine {
        let builder = Engine::builder().store(self.store.clone());
        build(builder).open().await.expect("the store is open")
    }

    /// An engine with a workflow `double` of two steps.
    pub(crate) async fn doubling(&self) -> Engine {
        self.engine(|builder| builder.workflow("double", double)).await
    }
}

async fn double(ctx: Ctx, number: u64) -> semel::Result<u64> {
    let doubled = ctx.step("double").run(async |_| Ok(number * 2)).await?;
    ctx.step("check").run(async |_| Ok(doubled)).await
}

/// A schema that no other test has used.
pub(crate) fn fresh_schema() -> String {
    static CASES: AtomicUsize = AtomicUsize::new(0);
    format!("server_{}_{}", std::process::id(), CASES.fetch_add(1, Ordering::Relaxed))
}

/// A store in a schema of the server of `scripts/with-postgres`.
pub(crate) async fn postgres(schema: &str) -> Arc<dyn Store> {
    let url = std::env::var("SEMEL_TEST_POSTGRES").expect("main has seen to it that there is a server");
    let options =
        PostgresOptions { schema: Some(schema.to_owned()), connections: 8, ..PostgresOptions::new(url) };
    Arc::new(PostgresStore::open(options).await.expect("a fresh schema can be opened"))
}

/// A server, as its callers see it.
#[derive(Clone)]
pub(crate) struct Api {
    base: String,
    client: Client,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Api {
    /// Serves a store on a port of its own for as long as the runtime lives.
    pub(crate) async fn serve(store: Arc<dyn Store>) -> Self {
        Self::serve_app(App::open(store, Arc::new(SystemClock::new()))).await
    }

    /// The same with the state of a server.
    pub(crate) async fn serve_app(app: App) -> Self {
        Self::route(http::router(Arc::new(app))).await
    }

    /// Serves an application, each of whose calls is made by this caller.
    pub(crate) async fn serve_as(app: App, caller: Caller) -> Self {
        Self::route(http::router(Arc::new(app)).layer(Extension(caller))).await
    }

    async fn route(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("it is bound"));
        tokio::spawn(async move { axum::serve(listener, router).await.expect("serving goes on") });
        Self::at(base)
    }

    /// A server somewhere.
    pub(crate) fn at(base: String) -> Self {
        // The first of several callers installs it; all of them want the same.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        Self { base, client: Client::new() }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let api = if path.starts_with("/errors") { "" } else { http::PREFIX };
        self.client.request(method, format!("{}{api}{path}", self.base))
    }

    /// A request outside the API.
    pub(crate) fn outside(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<String>) -> Reply {
        Reply::of(self.request(Method::POST, path).body(body.into())).await
    }

    /// With the header `Idempotency-Key`.
    pub(crate) async fn post_as(&self, key: &str, path: &str, body: impl Into<String>) -> Reply {
        let request = self.request(Method::POST, path).header("idempotency-key", key);
        Reply::of(request.body(body.into())).await
    }

    /// Starts a run of this workflow; gives its id.
    pub(crate) async fn start(&self, workflow: &str, key: &str, input: &str) -> String {
        let body = format!(r#"{{"workflow": "{workflow}", "idempotencyKey": "{key}", "input": {input}}}"#);
        let reply = self.post("/workflow-runs", body).await;
        assert_eq!(reply.status, 201, "{}", reply.text);
        reply.run_id()
    }

    /// Waits for a run's end.
    pub(crate) async fn ended(&self, run: &str) -> Value {
        loop {
            let detail = self.get(&format!("/workflow-runs/{run}?wait=60")).await.ok();
            if detail["endedAt"].is_string() {
                return detail;
            }
        }
    }

    /// Waits until a run is in a state.
    pub(crate) async fn reached(&self, run: &str, status: &str) -> Value {
        let mut version = 0;
        loop {
            let path = format!("/workflow-runs/{run}?wait=60&version={version}");
            let detail = self.get(&path).await.ok();
            if detail["status"] == status {
                return detail;
            }
            version = detail["version"].as_u64().expect("every run has a version");
        }
    }
}

impl Reply {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("an answer has an end");
        assert!(status < 500, "{status}: {text}");
        Self { status, headers, text }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    /// Its JSON, if it is a 200 or 201.
    pub(crate) fn ok(&self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{}: {}", self.status, self.text);
        self.json()
    }

    pub(crate) fn run_id(&self) -> String {
        self.ok()["run"]["id"].as_str().expect("a run has an id").to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("our headers are text"))
    }

    pub(crate) fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// It is a problem with this code: the answer's status, its type and its members say so alike.
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.json();
        assert_eq!((self.status, problem["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("/errors/{code}"));
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{problem}");
        problem
    }
}
