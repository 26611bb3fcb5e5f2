//! What must not happen: pages of others, secrets in logs, unbounded requests.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use libtest_mimic::Trial;
use reqwest::Method;
use semel::rules::json::MAX_BYTES;
use semel_server::config::{Config, Cors};
use serde_json::json;

use crate::process::Process;
use crate::served::{ROOT, Served, client, config, keyed};
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_foreign_host_or_origin_is_refused_without_authentication,
        where_callers_are_known_any_host_is_answered,
        cors_is_off_unless_an_origin_is_listed,
        every_answer_has_its_headers,
        a_body_that_is_too_long_is_refused,
        too_many_headers_are_refused,
        no_secret_reaches_the_log,
    ]
}

async fn a_foreign_host_or_origin_is_refused_without_authentication() {
    let served = Served::open(&config()).await;
    let ask = async |host: &str, origin: Option<&str>| {
        let url = format!("http://{}/api/v1/workflow-runs", served.address);
        let mut request = client().post(url).header("host", host).body(r#"{"workflow": "w"}"#);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        Reply::of(request).await
    };
    ask("evil.example", None).await.problem(403, "FORBIDDEN");
    ask("localhost:7700", Some("http://evil.example")).await.problem(403, "FORBIDDEN");
    ask("localhost:7700", Some("null")).await.problem(403, "FORBIDDEN");
    ask("localhost:7700", Some("http://localhost:7700")).await.ok();
    ask("localhost:7700", None).await.ok();
}

async fn where_callers_are_known_any_host_is_answered() {
    let served = Served::open(&keyed()).await;
    let (_, key) = served.caller(ROOT).key(None, &["read"]).await;
    let request = key.request(Method::GET, "/workflow-runs").header("host", "semel.example.com");
    Reply::of(request).await.ok();
}

async fn cors_is_off_unless_an_origin_is_listed() {
    let ask = async |served: &Served, origin: &str| {
        let url = format!("http://{}/api/v1/workflow-runs", served.address);
        let request = client()
            .request(Method::OPTIONS, url)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,idempotency-key");
        request.send().await.unwrap().headers().get("access-control-allow-origin").cloned()
    };
    let app = "https://app.example.com";
    assert_eq!(ask(&Served::open(&keyed()).await, app).await, None);
    let cors = Cors { origins: vec![app.to_owned()] };
    let served = Served::open(&Config { cors, ..keyed() }).await;
    assert_eq!(ask(&served, app).await.unwrap(), app);
    assert_eq!(ask(&served, "https://evil.example").await, None);
    let cors = Cors { origins: vec!["*".to_owned()] };
    let refused = semel_server::serve::Server::open(&Config { cors, ..keyed() }).await;
    assert!(refused.err().unwrap().to_string().contains("cors.origins"));
}

async fn every_answer_has_its_headers() {
    let served = Served::open(&config()).await;
    for path in ["/healthz", "/api/v1/workflow-runs", "/nowhere"] {
        let url = format!("http://{}{path}", served.address);
        let answer = client().get(&url).header("x-request-id", "mine-7").send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"), "{path}");
        assert_eq!(header("referrer-policy").as_deref(), Some("no-referrer"), "{path}");
        assert!(header("content-security-policy").unwrap().contains("frame-ancestors 'none'"), "{path}");
        assert_eq!(header("x-request-id").as_deref(), Some("mine-7"), "{path}");
        let unasked = client().get(&url).send().await.unwrap();
        assert!(unasked.headers().contains_key("x-request-id"), "{path}");
    }
}

async fn a_body_that_is_too_long_is_refused() {
    let served = Served::open(&config()).await;
    // As long as it is read, and one byte more.
    let body = " ".repeat(MAX_BYTES + 1);
    let url = format!("http://{}/api/v1/workflow-runs", served.address);
    Reply::of(client().post(url).body(body)).await.problem(413, "PAYLOAD_TOO_LARGE");
    served.caller("").get("/workflow-runs").await.ok();
}

async fn too_many_headers_are_refused() {
    let served = Served::open(&config()).await;
    let many = "x-many: 1\r\n".repeat(500);
    let answer =
        served.told(format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

async fn no_secret_reaches_the_log() {
    const CANARY: &str = "canary-3f9a";
    let root = format!("root-{CANARY}-root");
    let process =
        Process::serve(&["--store", "memory:"], &[("SEMEL_ROOT_TOKEN", &root), ("SEMEL_LOG", "trace")]);
    let caller = process.caller(&root);
    let (id, key) = caller.key(None, &["admin"]).await;
    let secret = key.text().rsplit('_').next().unwrap().to_owned();
    key.get("/workflow-runs").await.ok();
    key.with(&format!("wrong-{CANARY}")).get("/workflow-runs").await.problem(401, "AUTH_ERROR");
    let body = json!({"workflow": "w", "input": {"card": CANARY}, "idempotencyKey": CANARY});
    key.post("/workflow-runs", &body).await.ok();
    key.get(&format!("/keys/{CANARY}")).await.ok();
    key.post(&format!("/hooks/{CANARY}"), &json!({"payload": CANARY})).await;
    key.post("/workflow-runs", &json!({"workflow": CANARY, "unknown": CANARY}))
        .await
        .problem(400, "VALIDATION_ERROR");
    caller.delete(&format!("/api-keys/{id}")).await.ok();
    let log = process.ended();
    assert!(log.contains("/api/v1/keys/{key}"), "the log has the routes: {log}");
    for (number, line) in log.lines().enumerate() {
        assert!(!line.contains(CANARY) && !line.contains(&secret), "line {number}: {line}");
    }
}
