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
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::access::beside;
use crate::served::{ROOT, Served, Token, client, config, keyed};
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
        a_workspace_has_so_many_waiting_calls_and_others_have_theirs,
        a_workspace_has_so_many_open_runs_and_others_have_theirs,
        starts_at_once_do_not_exceed_the_open_runs,
        repeated_starts_use_up_no_room,
        a_restart_needs_room_for_an_open_run,
        a_fork_and_a_restart_need_room_for_an_open_run,
        children_wait_when_there_are_twice_as_many_open_runs,
        a_definition_that_starts_itself_comes_to_an_end,
        the_rate_limit_counts_the_starts_of_a_batch,
        a_body_above_the_limit_is_answered_although_it_is_still_being_sent,
        bodies_on_their_way_have_a_bound_and_others_have_theirs,
        a_run_that_nothing_serves_says_so,
        what_is_built_in_is_driven_in_every_workspace,
        workers_are_listed_by_pages,
        a_worker_says_only_so_much_of_itself,
        a_claim_asks_for_so_many_workflows,
    ]
}

/// The time `millis` milliseconds from now, in its form on the wire.
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

async fn the_rate_limit_counts_the_starts_of_a_batch() {
    let limits = Limits { rate: 5, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let (_, key) = served.caller(ROOT).key(None, &["start", "read", "worker"]).await;
    let runs: Vec<_> = (0..100).map(|_| json!({"workflow": "w"})).collect();
    let answer = key.post("/workflow-runs/batch", &json!({"runs": runs})).await.ok();
    let with = |status: u64| {
        answer["results"].as_array().unwrap().iter().filter(|result| result["status"] == status).count()
    };
    // A busy machine may take more than a moment for it, in which some more are allowed.
    assert!((1..=10).contains(&with(201)) && with(201) + with(429) == 100, "{answer}");
    let refused = &answer["results"][99]["problem"];
    assert_eq!(refused["code"], "RATE_LIMIT_ERROR", "{answer}");
}

async fn a_workspace_has_so_many_open_runs_and_others_have_theirs() {
    let limits = Limits { max_open_runs: 2, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(None, &["start", "read", "admin"]).await;
    let (_, other) = root.key(Some("acme"), &["start", "read"]).await;
    let start = |n: u64| json!({"workflow": "w", "idempotencyKey": n.to_string()});
    let run = key.post("/workflow-runs", &start(1)).await.run_id();
    assert_eq!(key.post("/workflow-runs", &start(2)).await.status, 201);
    let refused = key.post("/workflow-runs", &start(3)).await;
    refused.problem(429, "RATE_LIMIT_ERROR");
    let batch = key.post("/workflow-runs/batch", &json!({"runs": [start(2), start(4)]})).await.ok();
    assert_eq!([&batch["results"][0]["status"], &batch["results"][1]["status"]], [200, 429], "{batch}");
    assert_eq!(key.post("/workflow-runs", &start(1)).await.status, 200, "a repeated start makes no new run");
    assert_eq!(other.post("/workflow-runs", &start(3)).await.status, 201, "others have theirs");
    key.post(&format!("/workflow-runs/{run}/cancel"), &json!({})).await.ok();
    // Asked for as long as the last count is believed.
    let again = async {
        while key.post("/workflow-runs", &start(3)).await.status != 201 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), again).await.unwrap();
}

async fn starts_at_once_do_not_exceed_the_open_runs() {
    let limits = Limits { max_open_runs: 3, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let (_, key) = served.caller(ROOT).key(None, &["start", "read"]).await;
    let start = |n: u64| {
        let run = semel::id::RunId(uuid::Uuid::from_u128(n.into()));
        json!({"run": run, "workflow": "w", "input": null, "key": n.to_string()})
    };
    let starts: Vec<_> = (0..100).map(start).collect();
    let answer = key.post("/workers/start", &json!({"starts": starts})).await.ok();
    let answers = answer["answers"].as_array().unwrap();
    let started: Vec<_> = answers.iter().map(|answer| answer.to_string().contains("created")).collect();
    assert_eq!(started.iter().filter(|started| **started).count(), 3, "{answer}");
    assert!(answer.to_string().contains("limits.max-open-runs"), "{answer}");
    let runs: Vec<_> =
        (0..100).map(|n| json!({"workflow": "v", "idempotencyKey": format!("v{n}")})).collect();
    let batch = key.post("/workflow-runs/batch", &json!({"runs": runs})).await.ok();
    assert!(batch["results"].as_array().unwrap().iter().all(|result| result["status"] == 429), "{batch}");
    // A start that repeats one is answered.
    let first = started.iter().position(|started| *started).unwrap();
    let again = key.post("/workers/start", &json!({"starts": [start(first as u64)]})).await.ok();
    assert!(again.to_string().contains("created"), "{again}");
}

/// A server whose workspaces may have so many open runs, and a key of one of them.
async fn with_open_runs(max: u32) -> (Served, Token) {
    let limits = Limits { max_open_runs: max, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let (_, key) = served.caller(ROOT).key(None, &["start", "read", "worker", "admin"]).await;
    (served, key)
}

async fn repeated_starts_use_up_no_room() {
    let (_served, key) = with_open_runs(2).await;
    let start = async |n: u64| {
        let body = json!({"workflow": "w", "idempotencyKey": format!("k{n}")});
        key.post("/workflow-runs", &body).await.status
    };
    assert_eq!([start(1).await, start(1).await, start(1).await, start(2).await], [201, 200, 200, 201]);
    assert_eq!([start(3).await, start(1).await], [429, 200]);
    // By a remote engine, which repeats a start under the id of its run.
    let (_served, key) = with_open_runs(2).await;
    let started = async |n: u64| {
        let run = semel::id::RunId(uuid::Uuid::from_u128(n.into()));
        let start = json!({"run": run, "workflow": "w", "input": null, "key": n.to_string()});
        let answer = key.post("/workers/start", &json!({"starts": vec![start; 3]})).await.ok();
        answer["answers"].to_string().matches("created").count()
    };
    assert_eq!([started(1).await, started(2).await], [3, 3]);
    assert_eq!([started(3).await, started(1).await], [0, 3]);
}

async fn a_fork_and_a_restart_need_room_for_an_open_run() {
    let (_served, key) = with_open_runs(2).await;
    let start = json!({"workflow": "w", "timeout": "1ms"});
    let over = key.post("/workflow-runs", &start).await.run_id();
    let ends = async {
        while key.get(&format!("/workflow-runs/{over}")).await.ok()["status"] != "TIMED_OUT" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), ends).await.unwrap();
    let open = key.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let fork = async |id: &str| {
        let request = key.request(Method::POST, &format!("/workflow-runs/{open}/fork"));
        Reply::of(request.header("idempotency-key", id).body("{}")).await
    };
    assert_eq!(fork("first").await.status, 201, "there is room for one more");
    fork("second").await.problem(429, "RATE_LIMIT_ERROR");
    assert_eq!(fork("first").await.status, 200, "a repeated fork makes no run");
    for action in ["retry", "restart"] {
        let refused = key.post(&format!("/workflow-runs/{over}/{action}"), &json!({})).await;
        refused.problem(429, "RATE_LIMIT_ERROR");
        key.post(&format!("/workflow-runs/{open}/{action}"), &json!({}))
            .await
            .problem(409, "INVALID_TRANSITION");
    }
    let control = async |action: serde_json::Value| {
        let call = json!({"run": over, "action": action, "by": "ann", "id": null, "expected": null});
        key.post("/workers/control", &call).await
    };
    let forked = semel::id::RunId(uuid::Uuid::from_u128(9));
    for action in [
        json!({"restart": "failure"}),
        json!({"fork": {"run": forked, "key": null, "at": null, "lineage": "inherited"}}),
    ] {
        let refused = control(action).await.problem(429, "RATE_LIMIT_ERROR");
        assert!(refused["error"].to_string().contains("limits.max-open-runs"), "{refused}");
    }
    assert_eq!(control(json!("pause")).await.status, 409, "what opens no run is decided as ever");
    key.post(&format!("/workflow-runs/{open}/cancel"), &json!({})).await.ok();
    // Asked for as long as the last count is believed.
    let again = async {
        while key.post(&format!("/workflow-runs/{over}/retry"), &json!({})).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), again).await.unwrap();
}

async fn a_restart_needs_room_for_an_open_run() {
    let limits = Limits { max_open_runs: 1, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let (_, key) = served.caller(ROOT).key(None, &["start", "read"]).await;
    let start = |n: &str, more: serde_json::Value| {
        let mut start = json!({"workflow": "w", "idempotencyKey": n});
        start.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        start
    };
    let short = start("short", json!({"timeout": "1ms"}));
    let run = key.post("/workflow-runs", &short).await.run_id();
    let ends = async {
        while key.get(&format!("/workflow-runs/{run}")).await.ok()["status"] != "TIMED_OUT" {
            tokio::task::yield_now().await;
        }
        while key.post("/workflow-runs", &start("open", json!({}))).await.status == 429 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), ends).await.unwrap();
    let again = start("short", json!({"timeout": "1ms", "onConflict": "retry-failed"}));
    key.post("/workflow-runs", &again).await.problem(429, "RATE_LIMIT_ERROR");
    let attached = key.post("/workflow-runs", &short).await;
    assert_eq!(attached.status, 200, "what only finds the run needs no room");
}

async fn children_wait_when_there_are_twice_as_many_open_runs() {
    let limits = Limits { max_open_runs: 1, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let (_, key) = served.caller(ROOT).key(None, &["admin"]).await;
    // The second child would be the third open run: it waits until there is room, and is given up in the end.
    let document = "semel: 1\nname: two\nsteps:\n  - {name: a, child: {run: w, wait: false, later: true}}\n  - {name: b, child: {run: w, wait: false, later: true}}\n";
    let pushed =
        key.request(Method::POST, "/workflow-definitions").header("content-type", "application/yaml");
    Reply::of(pushed.body(document)).await.ok();
    let run = key.post("/workflow-runs", &json!({"definitionId": "two"})).await.run_id();
    let ended = async {
        loop {
            let shown = key.get(&format!("/workflow-runs/{run}")).await.ok();
            if shown["status"] == "FAILED" {
                return shown;
            }
            tokio::task::yield_now().await;
        }
    };
    let failed = tokio::time::timeout(Duration::from_mins(1), ended).await.unwrap();
    assert!(failed.to_string().contains("limits.max-open-runs"), "{failed}");
    let children = key.get("/workflow-runs?workflow=w").await.ok();
    assert_eq!(children["runs"].as_array().unwrap().len(), 1, "{children}");
}

async fn a_definition_that_starts_itself_comes_to_an_end() {
    let served = Served::open(&keyed()).await;
    let (_, key) = served.caller(ROOT).key(None, &["admin"]).await;
    let document = "semel: 1\nname: ring\nsteps: [{name: again, child: {run: ring, later: true}}]\n";
    let push = key.request(Method::POST, "/workflow-definitions").header("content-type", "application/yaml");
    Reply::of(push.body(document)).await.ok();
    let start = key.request(Method::POST, "/workflow-runs").header("prefer", "wait=60");
    let ended = Reply::of(start.body(json!({"definitionId": "ring"}).to_string())).await.ok();
    assert_eq!(ended["run"]["status"], "FAILED", "{ended}");
    let runs = key.get("/workflow-runs?workflow=ring&limit=100").await.ok();
    let runs = runs["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 65, "the first one, and 64 generations");
    let last = key.get(&format!("/workflow-runs/{}", runs[0]["id"].as_str().unwrap())).await.ok();
    assert!(last.to_string().contains("does a workflow start itself"), "{last}");
}

async fn a_body_above_the_limit_is_answered_although_it_is_still_being_sent() {
    let served = Served::open(&config()).await;
    let chunk = vec![b' '; 64 * 1024];
    for length in [3 * 1024 * 1024_usize, 40 * 1024 * 1024] {
        for chunked in [false, true] {
            let mut call = served.connect().await;
            let size = match chunked {
                true => "transfer-encoding: chunked".to_owned(),
                false => format!("content-length: {length}"),
            };
            let head = format!("POST /api/v1/workflow-runs HTTP/1.1\r\nhost: localhost\r\n{size}\r\n\r\n");
            call.write_all(head.as_bytes()).await.unwrap();
            // All of it is taken, as by a client that reads the answer when it has sent everything.
            for _ in 0..length / chunk.len() {
                if chunked {
                    call.write_all(b"10000\r\n").await.unwrap();
                }
                call.write_all(&chunk).await.expect("the server still reads");
                if chunked {
                    call.write_all(b"\r\n").await.unwrap();
                }
            }
            if chunked {
                call.write_all(b"0\r\n\r\n").await.unwrap();
            }
            let mut answer = [0; 12];
            call.read_exact(&mut answer).await.expect("the answer is there");
            assert_eq!(&answer, b"HTTP/1.1 413", "{length} bytes, chunked: {chunked}");
        }
    }
    // A client that asks first is told at once.
    let head = "POST /api/v1/workflow-runs HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                content-length: 9999999999\r\nconnection: close\r\n\r\n";
    assert!(served.told(head.as_bytes()).await.starts_with("HTTP/1.1 413"));
}

/// Begins a call of a worker whose body is announced with this length and never ends; gives the connection.
async fn unfinished(served: &Served, token: &str, bytes: usize) -> TcpStream {
    let mut call = served.connect().await;
    let head = format!(
        "POST /api/v1/workers/commit HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n",
        bytes + 1
    );
    call.write_all(head.as_bytes()).await.unwrap();
    call.write_all(&vec![b' '; bytes]).await.unwrap();
    call
}

async fn bodies_on_their_way_have_a_bound_and_others_have_theirs() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(None, &["worker", "read"]).await;
    let (_, other) = root.key(Some("acme"), &["worker", "start"]).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        open.push(unfinished(&served, key.text(), 15 * 1024 * 1024).await);
    }
    // The end of those that were refused; the others wait for theirs.
    for call in &mut open {
        call.write_all(b" ").await.unwrap();
    }
    let mut statuses = Vec::new();
    for call in &mut open {
        let mut answer = [0; 12];
        call.read_exact(&mut answer).await.unwrap();
        statuses.push(String::from_utf8_lossy(&answer[9..]).into_owned());
    }
    // At most four fit, and are no JSON; the others had no room.
    let refused = statuses.iter().filter(|status| *status == "429").count();
    assert!(refused >= 2 && statuses.iter().all(|status| status == "400" || status == "429"), "{statuses:?}");
    other.post("/workflow-runs", &json!({"workflow": "w"})).await.ok();
    key.get("/workflow-runs").await.ok();
}

async fn a_run_that_nothing_serves_says_so() {
    let served = Served::open(&config()).await;
    let caller = served.caller("");
    let start = async |workflow: &str| {
        let body = json!({"workflow": workflow, "workflowVersion": "2"});
        caller.post("/workflow-runs", &body).await.ok()["run"].clone()
    };
    let first = start("order").await;
    assert_eq!(first["unserved"], true, "{first}");
    let path = format!("/workflow-runs/{}", first["id"].as_str().unwrap());
    assert_eq!(caller.get(&path).await.ok()["unserved"], true);
    let worker = json!({"node": NODE, "name": "w", "serves": ["order@2"], "leaseMs": 60000});
    caller.post("/workers", &worker).await.ok();
    assert!(start("order").await["unserved"].is_null(), "a worker serves it");
    assert!(caller.get(&path).await.ok()["unserved"].is_null());
    assert!(caller.get("/workflow-runs").await.ok()["runs"][0]["unserved"].is_null());
    assert_eq!(start("other").await["unserved"], true);
    let claim =
        json!({"node": NODE, "workflows": [{"workflow": "other", "workflowVersion": "2"}], "limit": 0});
    caller.post("/workers/claim", &claim).await.ok();
    assert!(start("other").await["unserved"].is_null(), "what a worker asks for it serves");
    caller.post("/workers/release", &json!({"node": NODE})).await.ok();
    assert_eq!(start("order").await["unserved"], true, "the worker has gone");
}

async fn what_is_built_in_is_driven_in_every_workspace() {
    let served = Served::open(&Config { demo: true, ..keyed() }).await;
    let root = served.caller(ROOT);
    for (number, workspace) in ["acme", "beta"].into_iter().enumerate() {
        root.post("/workspaces", &json!({"name": workspace})).await.ok();
        let (_, key) = root.key(Some(workspace), &["start", "read"]).await;
        let order = json!({"order": format!("o-{number}"), "amount": 1999});
        // The same key is another run in each.
        let body = json!({"workflow": "demo-order", "input": order, "idempotencyKey": "k"});
        let start = key.request(Method::POST, "/workflow-runs").header("prefer", "wait=30");
        let run = Reply::of(start.body(body.to_string())).await.ok()["run"].clone();
        assert_eq!(run["status"], "COMPLETED", "{workspace}: {run}");
        assert_eq!(run["workflowVersion"], "demo_1");
        let start = async |workflow: &str, version: &str| {
            let body = json!({"workflow": workflow, "workflowVersion": version, "delay": "1h"});
            key.post("/workflow-runs", &body).await.ok()["run"].clone()
        };
        assert!(start("demo-order", "demo_1").await["unserved"].is_null(), "{workspace}");
        let run = start("demo-order", "1").await;
        assert_eq!(run["unserved"], true, "{workspace}: {run}");
    }
}

const NODE: &str = "node_01j0000000e00800000000007z";

async fn workers_are_listed_by_pages() {
    let served = Served::open(&config()).await;
    let caller = served.caller("");
    for number in 0..7 {
        let node = format!("node_01j0000000e0080000000000{number:02}");
        let worker = json!({"node": node, "name": format!("w{number}"), "serves": ["a@1"], "leaseMs": 60000});
        caller.post("/workers", &worker).await.ok();
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = caller.get(&format!("/workers?limit=3{cursor}")).await.ok();
        let workers = page["workers"].as_array().unwrap();
        names.extend(workers.iter().map(|worker| worker["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, ["w0", "w1", "w2", "w3", "w4", "w5", "w6"]);
    caller.get("/workers?limit=501").await.problem(400, "VALIDATION_ERROR");
}

async fn a_worker_says_only_so_much_of_itself() {
    let served = Served::open(&keyed()).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(None, &["worker", "read"]).await;
    let (_, other) = root.key(Some("acme"), &["worker"]).await;
    let register = async |key: &Token, number: usize, bytes: usize| {
        let workflows: Vec<_> = (0..bytes / 400).map(|n| format!("{n:0>368}")).collect();
        let node = format!("node_01j0000000e008000000000{number:03}");
        key.post("/workers", &json!({"node": node, "name": "w", "serves": workflows, "leaseMs": 60000})).await
    };
    register(&key, 0, 70_000).await.problem(413, "PAYLOAD_TOO_LARGE");
    let mut refused = 0;
    for number in 0..200 {
        match register(&key, number, 60_000).await.status {
            200 => assert_eq!(refused, 0, "the bound holds"),
            429 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert!((50..100).contains(&refused), "8 MiB of 12 fit: {refused} were refused");
    register(&key, 0, 60_000).await.ok();
    register(&other, 1, 60_000).await.ok();
    let page = key.get("/workers?limit=500").await;
    assert!(page.text.len() < 2 * 1024 * 1024 && page.ok()["next"].is_string(), "{} bytes", page.text.len());
}

async fn a_claim_asks_for_so_many_workflows() {
    let served = Served::open(&config()).await;
    let caller = served.caller("");
    caller.post("/workers", &json!({"node": NODE, "name": "w", "serves": [], "leaseMs": 60000})).await.ok();
    let claim = |count: usize| {
        let workflow = |n| json!({"workflow": format!("w{n}"), "workflowVersion": "1"});
        json!({"node": NODE, "workflows": (0..count).map(workflow).collect::<Vec<_>>(), "limit": 1})
    };
    caller.post("/workers/claim", &claim(256)).await.ok();
    caller.post("/workers/claim", &claim(257)).await.problem(400, "VALIDATION_ERROR");
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
    for (path, status) in
        [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/api/v1/workflow-runs", 404)]
    {
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

async fn a_workspace_has_so_many_waiting_calls_and_others_have_theirs() {
    // A quarter of the connections may wait, and a quarter of those for one workspace: two.
    let limits = Limits { connections: 32, ..Limits::default() };
    let served = Served::open(&Config { limits, ..keyed() }).await;
    let root = served.caller(ROOT);
    root.post("/workspaces", &json!({"name": "acme"})).await.ok();
    let (_, key) = root.key(None, &["start", "read"]).await;
    let (_, other) = root.key(Some("acme"), &["start", "read"]).await;
    let run = key.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    let path = format!("/workflow-runs/{run}");
    let wait = |key: &Token, path: &str, seconds: u64| {
        Reply::of(key.request(Method::GET, &format!("{path}?wait={seconds}")))
    };
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..3 {
        waiting.spawn(wait(&key, &path, 60));
    }
    // The two that have room are still waiting.
    let refused = waiting.join_next().await.unwrap().unwrap();
    refused.problem(429, "RATE_LIMIT_ERROR");
    assert_eq!((refused.header("retry-after"), waiting.len()), (Some("1"), 2));
    assert_eq!(key.get(&path).await.status, 200, "a call that does not wait is answered");
    let their_run = other.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
    assert_eq!(wait(&other, &format!("/workflow-runs/{their_run}"), 1).await.status, 200);
}
