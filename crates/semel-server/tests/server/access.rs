//! Who may call: keys, workspaces, limits, audit.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn_with_state;
use libtest_mimic::Trial;
use reqwest::Method;
use semel::clock::{Clock, Time};
use semel::store::Store;
use semel::store::memory::MemoryStore;
use semel::testing::ManualClock;
use semel_server::access::{Access, Keys, gate};
use semel_server::app::App;
use semel_server::config::{Config, Limits, Secret};
use serde_json::{Value, json};

use crate::served::{ROOT, Served, Token, client, keyed};
use crate::world::{Reply, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![
        a_call_without_a_valid_token_is_refused_and_all_are_told_the_same,
        a_key_lives_from_its_creation_to_its_revocation,
        a_repeated_creation_makes_one_key_and_shows_no_token,
        a_key_may_do_what_it_was_made_for,
        root_makes_workspaces_and_keys_and_nothing_else,
        what_belongs_to_another_workspace_answers_like_what_does_not_exist,
        a_workspace_is_made_once,
        a_receipt_names_the_key_and_the_request_of_a_duplicate,
        a_revocation_is_effective_within_a_second_on_every_server,
        a_storm_of_wrong_tokens_does_not_reach_the_store,
        a_workspace_that_calls_too_often_is_told_when_to_come_back,
        administrative_calls_are_in_the_audit_of_their_workspace,
        a_server_that_no_key_could_call_does_not_start,
        the_description_and_operations_need_no_token,
    ]
}

async fn a_call_without_a_valid_token_is_refused_and_all_are_told_the_same() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (id, key) = root.key(None, &["read"]).await;
    let (revoked_id, revoked) = root.key(None, &["read"]).await;
    root.delete(&format!("/api-keys/{revoked_id}")).await.ok();
    let own = id.strip_prefix("key_").unwrap();
    let mut told = Vec::new();
    for wrong in [
        String::new(),
        "nonsense".to_owned(),
        format!("semel_{own}_{}", "0".repeat(64)),
        format!("semel_{}_{}", "0".repeat(26), "0".repeat(64)),
        format!("{ROOT}x"),
    ] {
        told.push(key.with(&wrong).get("/workflow-runs").await);
    }
    told.push(revoked.get("/workflow-runs").await);
    let bare = format!("http://{}/api/v1/workflow-runs", served.address);
    told.push(Reply::of(client().get(&bare)).await);
    told.push(Reply::of(client().get(&bare).header("x-api-key", "nonsense")).await);
    for reply in &told {
        assert_eq!(reply.problem(401, "AUTH_ERROR"), told[0].json());
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    key.get("/workflow-runs").await.ok();
}

async fn a_key_lives_from_its_creation_to_its_revocation() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (id, key) = root.key(None, &["admin"]).await;
    key.get("/workflow-runs").await.ok();
    let listed = key.get("/api-keys").await;
    assert!(!listed.text.contains("hash") && !listed.text.contains("token"), "{}", listed.text);
    let listed = &listed.ok()["keys"][0];
    assert_eq!((listed["id"].as_str(), &listed["revokedAt"]), (Some(id.as_str()), &Value::Null));
    let path = format!("/api-keys/{id}");
    let revoked = root.delete(&path).await;
    assert!(revoked.ok()["revokedAt"].is_string() && !revoked.is_replayed());
    // On the server that was told, at once.
    key.get("/workflow-runs").await.problem(401, "AUTH_ERROR");
    let again = root.delete(&path).await;
    assert_eq!((again.is_replayed(), again.ok()), (true, revoked.ok()));
    assert_eq!(root.get("/api-keys").await.ok()["keys"][0]["revokedAt"], revoked.ok()["revokedAt"]);
}

async fn a_repeated_creation_makes_one_key_and_shows_no_token() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let make = async |name: &str| {
        let asked = json!({"name": name, "permissions": ["read"]});
        let request = root.request(Method::POST, "/api-keys").header("idempotency-key", "call-1");
        Reply::of(request.body(asked.to_string())).await
    };
    let (first, second) = (make("a").await, make("a").await);
    assert_eq!((first.status, second.status), (201, 200));
    assert_eq!((first.is_replayed(), second.is_replayed()), (false, true));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert!(first.json()["token"].is_string() && second.json()["token"].is_null());
    make("b").await.problem(422, "KEY_REUSED");
    assert_eq!(root.get("/api-keys").await.ok()["keys"].as_array().unwrap().len(), 1);
}

async fn a_key_may_do_what_it_was_made_for() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let (_, reader) = root.key(None, &["read"]).await;
    let (_, starter) = root.key(None, &["start"]).await;
    let (_, admin) = root.key(None, &["admin"]).await;
    let start = json!({"workflow": "w"});
    let run = starter.post("/workflow-runs", &start).await.run_id();
    reader.post("/workflow-runs", &start).await.problem(403, "FORBIDDEN");
    starter.get("/workflow-runs").await.problem(403, "FORBIDDEN");
    reader.get(&format!("/workflow-runs/{run}")).await.ok();
    reader.post(&format!("/workflow-runs/{run}/cancel"), &json!({})).await.problem(403, "FORBIDDEN");
    reader.get("/api-keys").await.problem(403, "FORBIDDEN");
    reader.get("/audit").await.problem(403, "FORBIDDEN");
    admin.get("/workspaces").await.problem(403, "FORBIDDEN");
    admin.post("/workflow-runs", &start).await.ok();
    admin.post(&format!("/workflow-runs/{run}/cancel"), &json!({})).await.ok();
    admin.post("/api-keys", &json!({"name": "x", "permissions": []})).await.problem(400, "VALIDATION_ERROR");
    admin
        .post("/api-keys", &json!({"name": " ", "permissions": ["read"]}))
        .await
        .problem(400, "VALIDATION_ERROR");
}

async fn root_makes_workspaces_and_keys_and_nothing_else() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    assert_eq!(root.post("/workspaces", &json!({"name": "acme"})).await.status, 201);
    let names: Vec<_> = root.get("/workspaces").await.ok()["workspaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|workspace| workspace["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["acme", "default"]);
    root.post("/workflow-runs", &json!({"workflow": "w"})).await.problem(403, "FORBIDDEN");
    root.get("/workflow-runs").await.problem(403, "FORBIDDEN");
    let nowhere = json!({"name": "x", "permissions": ["read"], "workspace": "nowhere"});
    root.post("/api-keys", &nowhere).await.problem(404, "NOT_FOUND");
}

/// Two workspaces, each with an administrator.
async fn two(root: &Token) -> [(String, Token); 2] {
    for name in ["acme", "bolt"] {
        root.post("/workspaces", &json!({"name": name})).await.ok();
    }
    [root.key(Some("acme"), &["admin"]).await, root.key(Some("bolt"), &["admin"]).await]
}

async fn what_belongs_to_another_workspace_answers_like_what_does_not_exist() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let [(_, acme), (foreign_key, bolt)] = two(&root).await;
    let started = bolt.post("/workflow-runs", &json!({"workflow": "w", "idempotencyKey": "foreign-k"})).await;
    let (foreign, unknown) = (started.run_id(), "run_01j0000000e00800000000007z".to_owned());
    let alike = async |method: Method, path: &str, [foreign, unknown]: [&str; 2]| {
        let ask = async |id: &str| {
            let request = acme.request(method.clone(), &path.replace("{}", id));
            let reply = Reply::of(if method == Method::POST { request.body("{}") } else { request }).await;
            (reply.status, reply.text.replace(id, "ID"))
        };
        let answer = ask(foreign).await;
        assert_eq!(answer, ask(unknown).await, "{method} {path}");
        assert_eq!(answer.0, 404, "{method} {path}: {}", answer.1);
    };
    for path in ["", "/ledger", "/events"] {
        alike(Method::GET, &format!("/workflow-runs/{{}}{path}"), [&foreign, &unknown]).await;
    }
    for path in ["cancel", "pause", "resume", "restart"] {
        alike(Method::POST, &format!("/workflow-runs/{{}}/{path}"), [&foreign, &unknown]).await;
    }
    let unknown_key = "key_01j0000000e00800000000007z";
    alike(Method::DELETE, "/api-keys/{}", [&foreign_key, unknown_key]).await;
    alike(Method::GET, "/keys/{}", ["foreign-k", "unknown-k"]).await;
    assert_eq!(acme.get("/workflow-runs").await.ok()["runs"], json!([]));
    let keys = acme.get("/api-keys").await;
    assert!(!keys.text.contains(&foreign_key));
    // The same key in two workspaces is two runs.
    assert_eq!(
        acme.post("/workflow-runs", &json!({"workflow": "w", "idempotencyKey": "foreign-k"})).await.status,
        201
    );
    for foreign in ["bolt", "nowhere"] {
        let asked = json!({"name": "x", "permissions": ["read"], "workspace": foreign});
        acme.post("/api-keys", &asked).await.problem(403, "FORBIDDEN");
    }
    bolt.get("/workflow-runs").await.ok();
}

async fn a_receipt_names_the_key_and_the_request_of_a_duplicate() {
    let served = Served::open(&keyed()).await;
    let (_, key) = served.caller(ROOT).key(None, &["start", "read"]).await;
    let start = |id: &'static str| {
        let body = r#"{"workflow": "order", "idempotencyKey": "k", "input": 1}"#;
        Reply::of(key.request(Method::POST, "/workflow-runs").header("x-request-id", id).body(body))
    };
    start("req-1").await.ok();
    start("req-2").await.ok();
    let shown = key.get("/keys/k").await.ok();
    let receipt = &shown["duplicates"][0]["recent"][0];
    assert_eq!((&receipt["requestId"], &receipt["same"]), (&json!("req-2"), &json!(true)), "{shown}");
    assert!(receipt["by"].as_str().is_some_and(|name| !name.is_empty()), "{shown}");
}

async fn a_workspace_is_made_once() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let make = async |body: Value| root.post("/workspaces", &body).await;
    let (first, second) = (make(json!({"name": "acme"})).await, make(json!({"name": "acme"})).await);
    assert_eq!((first.status, second.status, second.is_replayed()), (201, 200, true));
    assert_eq!(first.json(), second.json());
    make(json!({"name": "acme", "rateLimit": 5})).await.problem(409, "CONCURRENCY_ERROR");
    for wrong in [
        json!({"name": ""}),
        json!({"name": "A"}),
        json!({"name": "a b"}),
        json!({"name": "a", "rateLimit": 0}),
    ] {
        make(wrong).await.problem(400, "VALIDATION_ERROR");
    }
}

/// A server of its own on a shared store, whose time the test decides.
pub(crate) async fn beside<C: Clock>(store: &Arc<dyn Store>, clock: &Arc<C>) -> Token {
    let keys = Keys::new(Some(&Secret::new(ROOT)), 0);
    let (store, clock): (_, Arc<dyn Clock>) = (store.clone(), clock.clone());
    let app = Arc::new(App { access: Access::Keys(Box::new(keys)), ..App::open(store, clock) });
    let router = semel_server::http::router(app.clone()).layer(from_fn_with_state(app, gate));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Token::at(base, ROOT)
}

async fn a_revocation_is_effective_within_a_second_on_every_server() {
    let clock = Arc::new(ManualClock::new(Time(1_000_000), 1));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let (here, there) = (beside(&store, &clock).await, beside(&store, &clock).await);
    here.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (id, key) = here.key(Some("acme"), &["read"]).await;
    let key = there.with(key.text());
    key.get("/workflow-runs").await.ok();
    here.delete(&format!("/api-keys/{id}")).await.ok();
    clock.advance(Duration::from_millis(999));
    key.get("/workflow-runs").await.problem(401, "AUTH_ERROR");
}

async fn a_storm_of_wrong_tokens_does_not_reach_the_store() {
    let clock = Arc::new(ManualClock::new(Time(1_000_000), 1));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let root = beside(&store, &clock).await;
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(Some("acme"), &["read"]).await;
    key.get("/workflow-runs").await.ok();
    clock.advance(Duration::from_secs(1));
    let (mut refused, mut limited) = (0, 0);
    for n in 0..300 {
        let reply = root.with(&format!("semel_{n:026}_{}", "0".repeat(64))).get("/workflow-runs").await;
        match reply.status {
            401 => refused += 1,
            429 => limited += 1,
            other => panic!("{other}: {}", reply.text),
        }
    }
    // Time stands still: a second's worth was looked up.
    assert_eq!((refused, limited), (100, 200));
    key.get("/workflow-runs").await.ok();
    for _ in 0..300 {
        // The same wrong one again needs no look.
        root.with(&format!("semel_{:026}_{}", 7, "0".repeat(64)))
            .get("/workflow-runs")
            .await
            .problem(401, "AUTH_ERROR");
    }
}

async fn a_workspace_that_calls_too_often_is_told_when_to_come_back() {
    let limits = Limits { rate: 3, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "roomy", "rateLimit": 1000})).await.ok();
    let (_, key) = root.key(None, &["read"]).await;
    let (_, roomy) = root.key(Some("roomy"), &["read"]).await;
    let mut replies = Vec::new();
    for _ in 0..20 {
        replies.push(key.get("/workflow-runs").await);
        roomy.get("/workflow-runs").await.ok();
    }
    let limited: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert!(!limited.is_empty() && limited.len() < replies.len());
    for reply in limited {
        reply.problem(429, "RATE_LIMIT_ERROR");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
}

async fn administrative_calls_are_in_the_audit_of_their_workspace() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    let [(acme_id, acme), (_, bolt)] = two(&root).await;
    let run = acme.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    acme.get("/api-keys").await.ok();
    acme.post(&format!("/workflow-runs/{run}/cancel"), &json!({})).await.ok();
    acme.delete("/api-keys/key_01j0000000e00800000000007z").await.problem(404, "NOT_FOUND");
    let told: Vec<_> = acme.get("/audit").await.ok()["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let text = |member: &str| call[member].as_str().unwrap().to_owned();
            (text("by"), text("call"), call["status"].as_u64().unwrap())
        })
        .collect();
    let prefix = semel_server::http::PREFIX;
    assert_eq!(
        told,
        [
            (acme_id.clone(), format!("DELETE {prefix}/api-keys/{{id}}"), 404),
            (acme_id, format!("POST {prefix}/workflow-runs/{{id}}/cancel"), 200),
            ("root".to_owned(), format!("POST {prefix}/api-keys"), 201),
            ("root".to_owned(), format!("POST {prefix}/workspaces"), 201),
        ]
    );
    let page = acme.get("/audit?limit=1").await.ok();
    let next = acme.get(&format!("/audit?limit=1&cursor={}", page["next"].as_str().unwrap())).await.ok();
    assert_eq!(next["calls"][0]["subject"], format!("/workflow-runs/{run}/cancel"));
    assert!(!bolt.get("/audit").await.text.contains("cancel"));
    assert!(root.get("/audit?workspace=acme").await.text.contains("cancel"));
}

async fn a_server_that_no_key_could_call_does_not_start() {
    let config = Config { root_token: None, ..keyed() };
    let refused = semel_server::serve::Server::open(&config).await;
    let error = refused.err().expect("it is refused").to_string();
    assert!(error.contains("SEMEL_ROOT_TOKEN"), "{error}");
}

async fn the_description_and_operations_need_no_token() {
    let served = Served::open(&keyed()).await;
    for path in ["/healthz", "/readyz", "/api/v1/openapi.json", "/errors/AUTH_ERROR"] {
        let answer = client().get(format!("http://{}{path}", served.address)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
    }
}
