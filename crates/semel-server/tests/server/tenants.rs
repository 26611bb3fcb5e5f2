//! What one tenant may not do to the others: see their figures, keep streams of a revoked key, take all of the memory.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use libtest_mimic::Trial;
use reqwest::{Method, Response};
use semel::clock::{Clock as _, SystemClock, Time};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::testing::ManualClock;
use semel_server::config::{Config, Limits, Metrics, Secret};
use serde_json::json;

use crate::access::beside;
use crate::served::{ROOT, Served, Token, client, keyed};
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_key_is_refused_from_its_expiry_on,
        a_repeated_creation_with_another_expiry_is_refused,
        streams_end_when_their_key_is_revoked,
        streams_end_when_their_key_expires,
        metrics_are_not_on_the_public_port,
        metrics_may_need_a_token,
        metrics_may_have_a_port_of_their_own,
        a_workspace_has_so_many_streams_and_others_have_theirs,
    ]
}

/// The time so many milliseconds from now, as it travels.
fn after(now: Time, millis: i64) -> String {
    Timestamp::from_millisecond(now.0 + millis).unwrap().to_string()
}

async fn a_key_is_refused_from_its_expiry_on() {
    let clock = Arc::new(ManualClock::new(Time(1_000_000), 1));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let root = beside(&store, &clock).await;
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let asked = |expiry: &str| json!({"name": "k", "permissions": ["admin"], "workspace": "acme", "expiresAt": expiry});
    for wrong in ["tomorrow", "", &after(clock.now(), 0)] {
        root.post("/api-keys", &asked(wrong)).await.problem(400, "VALIDATION_ERROR");
    }
    let expiry = after(clock.now(), 10_000);
    let made = root.post("/api-keys", &asked(&expiry)).await.ok();
    let shown = made["expiresAt"].as_str().unwrap();
    assert_eq!(shown.parse::<Timestamp>().unwrap(), expiry.parse::<Timestamp>().unwrap());
    let key = root.with(made["token"].as_str().unwrap());
    clock.advance(Duration::from_millis(9_999));
    assert_eq!(key.get("/api-keys").await.ok()["keys"][0]["expiresAt"], *shown);
    clock.advance(Duration::from_millis(1));
    key.get("/api-keys").await.problem(401, "AUTH_ERROR");
    assert_eq!(root.get("/api-keys").await.ok()["keys"][0]["expiresAt"], *shown, "it is listed all the same");
}

async fn a_repeated_creation_with_another_expiry_is_refused() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let create = async |expiry: Option<&str>| {
        let body = json!({"name": "k", "permissions": ["read"], "expiresAt": expiry});
        let request = root.request(Method::POST, "/api-keys").header("idempotency-key", "k-1");
        Reply::of(request.body(body.to_string())).await
    };
    assert_eq!(create(Some("2100-01-01T00:00:00Z")).await.status, 201);
    assert!(create(Some("2100-01-01T00:00:00Z")).await.is_replayed());
    create(None).await.problem(422, "KEY_REUSED");
}

/// Open streams of a run's events and of wakes; each has said something.
async fn streams(key: &Token, run: &str) -> [Response; 2] {
    let paths = [format!("/workflow-runs/{run}/events"), "/workers/wakes".to_owned()];
    let mut open = Vec::new();
    for path in paths {
        let mut stream = key.request(Method::GET, &path).send().await.unwrap();
        assert_eq!(stream.status().as_u16(), 200, "{path}");
        assert!(stream.chunk().await.unwrap().is_some());
        open.push(stream);
    }
    open.try_into().unwrap()
}

/// Waits for the end of streams; more than the promised second only where the machine is very busy.
async fn ended(streams: [Response; 2]) {
    for mut stream in streams {
        let end = async { while stream.chunk().await.unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(5), end).await.expect("the stream ends with its key");
    }
}

async fn streams_end_when_their_key_is_revoked() {
    let clock = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let (here, there) = (beside(&store, &clock).await, beside(&store, &clock).await);
    here.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, owner) = here.key(Some("acme"), &["start"]).await;
    let run = owner.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    for server in [&here, &there] {
        let (id, key) = here.key(Some("acme"), &["read", "worker"]).await;
        let open = streams(&server.with(key.text()), &run).await;
        here.delete(&format!("/api-keys/{id}")).await.ok();
        ended(open).await;
    }
}

async fn streams_end_when_their_key_expires() {
    let clock = Arc::new(SystemClock::new());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let root = beside(&store, &clock).await;
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, owner) = root.key(Some("acme"), &["start"]).await;
    let run = owner.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let asked = json!({
        "name": "k", "permissions": ["read", "worker"], "workspace": "acme", "expiresAt": after(clock.now(), 1_500)
    });
    let made = root.post("/api-keys", &asked).await.ok();
    let key = root.with(made["token"].as_str().unwrap());
    ended(streams(&key, &run).await).await;
    key.get("/workflow-runs").await.problem(401, "AUTH_ERROR");
}

const COLLECTOR: &str = "token-of-the-collector";

async fn metrics_are_not_on_the_public_port() {
    let served = Served::open(&keyed()).await;
    let url = format!("http://{}/metrics", served.address);
    for token in ["", ROOT] {
        let told = Reply::of(client().get(&url).bearer_auth(token)).await.problem(404, "NOT_FOUND");
        assert!(told["detail"].as_str().unwrap().contains("metrics.listen"), "{told}");
    }
}

async fn metrics_may_need_a_token() {
    let metrics = Metrics { token: Some(Secret::new(COLLECTOR)), ..Metrics::default() };
    let served = Served::open(&Config { metrics, ..keyed() }).await;
    let url = format!("http://{}/metrics", served.address);
    for token in ["", ROOT, "another-token-of-a-collector"] {
        Reply::of(client().get(&url).bearer_auth(token)).await.problem(401, "AUTH_ERROR");
    }
    let told = Reply::of(client().get(&url).bearer_auth(COLLECTOR)).await;
    assert!(told.status == 200 && told.text.contains("semel_"), "{}", told.text);
}

async fn metrics_may_have_a_port_of_their_own() {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let served = Served::open(&Config { metrics: Metrics { listen, token: None }, ..keyed() }).await;
    let own = served.metrics.unwrap();
    for (path, status) in [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/api/v1/workflow-runs", 404)] {
        let answer = client().get(format!("http://{own}{path}")).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
    Reply::of(client().get(format!("http://{}/metrics", served.address))).await.problem(404, "NOT_FOUND");
    served.stop.order();
    served.stopped().await;
}

async fn a_workspace_has_so_many_streams_and_others_have_theirs() {
    let limits = Limits { streams: 2, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(None, &["start", "read", "worker"]).await;
    let (_, other) = root.key(Some("acme"), &["start", "read", "worker"]).await;
    let run = key.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let open = streams(&key, &run).await;
    for path in [format!("/workflow-runs/{run}/events"), "/workers/wakes".to_owned()] {
        let refused = key.get(&path).await;
        refused.problem(429, "RATE_LIMIT_ERROR");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    let their_run = other.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let others = streams(&other, &their_run).await;
    drop(others);
    drop(open);
    // The server notices that a reader has gone when it writes or reads the connection.
    while key.request(Method::GET, "/workers/wakes").send().await.unwrap().status().as_u16() != 200 {
        tokio::task::yield_now().await;
    }
}
