//! Damaged requests and configurations: nothing panics, nothing is answered with a failure of the server, and whatever is
//! refused is a problem that says why. `make fuzz` plays many more of them.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::cell::Cell;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::{Extension, Router};
use libtest_mimic::{Failed, Trial};
use proptest::prelude::*;
use semel::clock::{Clock as _, SystemClock};
use semel::id::{NodeId, WorkspaceId};
use semel::store::memory::MemoryStore;
use semel::testing::damage::{Read, damaged, damaged_text, play, wrong};
use semel_server::access::Caller;
use semel_server::api::Permission;
use semel_server::app::App;
use semel_server::config::Config;
use semel_server::http::router;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::process::Process;
use crate::world::{Api, runtime};

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<(), String>| {
        Trial::test(format!("fuzz::{name}"), move || Ok::<_, Failed>(test()?))
    };
    vec![
        trial("requests", requests),
        trial("definitions_in_time", definitions_in_time),
        trial("definitions_in_memory", definitions_in_memory),
        trial("configurations", configurations),
    ]
}

fn routes() -> Router {
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let app = Arc::new(App::open(store, clock));
    let caller = Caller::new(WorkspaceId::DEFAULT, "fuzz", vec![Permission::Admin]);
    router(app).layer(Extension(caller))
}

/// The answer to a request: its status, and its body unless that may have no end.
async fn asked(routes: &Router, request: Request<Body>) -> (u16, String) {
    let answer = routes.clone().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    if status < 400 {
        let endless = kind.as_deref() == Some("text/event-stream");
        let body = if endless {
            Vec::new()
        } else {
            to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec()
        };
        return (status, String::from_utf8(body).unwrap());
    }
    assert_eq!(kind.as_deref(), Some("application/problem+json"), "the answer to what is refused");
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The first line has method and address, the rest is the body.
fn request(message: &[u8]) -> Option<Request<Body>> {
    let line = message.iter().position(|byte| *byte == b'\n').unwrap_or(message.len());
    let (head, body) =
        (std::str::from_utf8(&message[..line]).ok()?, message.get(line + 1..).unwrap_or_default());
    let (method, address) = head.split_once(' ')?;
    Request::builder().method(method).uri(address).body(Body::from(body.to_vec())).ok()
}

/// A worker and its run, and requests about them.
async fn corpus(routes: &Router) -> Vec<String> {
    let node = NodeId(SystemClock::new().uuid());
    let ask = async |message: String| -> Value {
        let (status, body) = asked(routes, request(message.as_bytes()).unwrap()).await;
        assert!(status < 300, "{message}: {status} {body}");
        serde_json::from_str(&body).unwrap()
    };
    let join =
        format!("POST /api/v1/workers\n{{\"node\": \"{node}\", \"name\": \"w\", \"leaseMs\": 3600000}}");
    ask(join.clone()).await;
    let start = r#"POST /api/v1/workflow-runs
{"workflow": "order", "input": {"order": "7", "amount": 1999}, "idempotencyKey": "order-7", "onConflict": "attach",
 "retention": {"history": "720h", "key": "2160h"}, "exclude": ["/amount"], "timeout": "1h"}"#;
    let run = ask(start.to_owned()).await["run"]["id"].as_str().unwrap().to_owned();
    let claim = format!(
        "POST /api/v1/workers/claim\n{{\"node\": \"{node}\", \"workflows\": [{{\"workflow\": \"order\", \"workflowVersion\": \"1\"}}], \
         \"limit\": 10, \"keeps\": false}}"
    );
    ask(claim.clone()).await;
    let commit = format!(
        r#"POST /api/v1/workers/commit
{{"commits": [{{"run": "{run}", "expected": 2, "seen": 0, "entries": [
{{"stepStarted": {{"step": "charge", "attempt": 1, "class": "keyed"}}}}, {{"stepCompleted": {{"step": "charge", "value": {{"paid": true}}}}}}],
"drafts": [{{"after": 0, "draft": {{"openHook": {{"hook": "h", "token": "order:7"}}}}}}]}}]}}"#
    );
    let body = |call: &str, body: &str| format!("POST /api/v1/{call}\n{body}");
    let about = |call: &str, text: &str| body(&format!("workflow-runs/{run}/{call}"), text);
    vec![
        join,
        start.to_owned(),
        claim,
        commit,
        body(
            "workflow-runs/batch",
            r#"{"runs": [{"workflow": "order", "input": 1}, {"workflow": "order", "idempotencyKey": "a"}]}"#,
        ),
        about("cancel", r#"{"reason": "by mistake", "graceful": true, "expectedVersion": 2}"#),
        about("pause", r#"{"expectedVersion": 2}"#),
        about("resume", "{}"),
        about("restart", r#"{"from": "failure"}"#),
        about("fork", r#"{"at": 2, "key": "other", "freshKeys": true}"#),
        about("steps/charge/resolve", r#"{"resolution": "happened", "tick": 1, "value": {"paid": true}}"#),
        body("hooks/order:7", r#"{"approved": true, "by": "é"}"#),
        body("api-keys", r#"{"name": "shop", "permissions": ["start", "read"]}"#),
        body("workspaces", r#"{"name": "shop", "rateLimit": 100}"#),
        body(
            "workflow-definitions?current=false",
            "semel: 1\nname: a\nsteps:\n  - {name: pause, wait: 1s}\n",
        ),
        body("workflow-definitions/a/use", r#"{"version": "1"}"#),
        body("workflow-runs", r#"{"definitionId": "a@1", "input": {"n": 1}, "idempotencyKey": "a-7"}"#),
        body("steps/claim", &format!(r#"{{"node": "{node}", "queues": ["payments"], "limit": 5}}"#)),
        body("steps/complete", &format!(r#"{{"steps": [{{"run": "{run}", "fence": 2, "value": 1}}]}}"#)),
        "GET /api/v1/workflow-runs?status=RUNNING&workflow=order&since=2026-11-15T00:00:00Z&limit=10"
            .to_owned(),
        format!("GET /api/v1/workflow-runs/{run}?include=ledger"),
        format!("GET /api/v1/workflow-runs/{run}/ledger?after=1&limit=2"),
        "GET /api/v1/idempotency-keys/order-7?scope=workspace".to_owned(),
        "GET /api/v1/hooks/order%3A7".to_owned(),
        "GET /api/v1/audit?limit=1".to_owned(),
    ]
}

fn requests() -> Result<(), String> {
    let runtime = runtime();
    let _inside = runtime.enter();
    let routes = routes();
    let corpus = runtime.block_on(corpus(&routes));
    play(&damaged(corpus), |message| {
        let Some(request) = request(&message) else { return Ok(Read::Refused) };
        let (status, body) = runtime.block_on(asked(&routes, request));
        prop_assert!(status < 500, "{status} {body}");
        if status < 400 {
            return Ok(Read::Taken);
        }
        let problem: Value = serde_json::from_str(&body).map_err(wrong)?;
        let said = |member: &str| problem[member].as_str().is_some_and(|text| !text.is_empty());
        prop_assert!(said("code") && said("detail") && problem["status"] == status, "{body}");
        Ok(Read::Refused)
    })
}

/// The definitions that the check accepts, as texts.
fn right_definitions() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/definitions/right");
    let mut texts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    texts.sort();
    texts
}

/// Maximum time of a check; without optimisation everything takes many times as long.
const CHECKED_WITHIN_MS: u128 = if cfg!(debug_assertions) { 2_000 } else { 100 };

fn definitions_in_time() -> Result<(), String> {
    let runtime = runtime();
    let _inside = runtime.enter();
    let post = |address: &str, text: &str| {
        Request::post(format!("/api/v1/{address}")).body(Body::from(text.to_owned())).unwrap()
    };
    let (checks, slowest) = (routes(), Cell::new(0));
    let played = play(&damaged_text(right_definitions()), |text| {
        let clock = SystemClock::new();
        let (status, body) = runtime.block_on(asked(&checks, post("workflow-definitions?check=true", &text)));
        let took = clock.elapsed().as_millis();
        prop_assert!(status < 500, "{status} {body}");
        prop_assert!(took <= CHECKED_WITHIN_MS, "{took} ms");
        slowest.set(slowest.get().max(took));
        let answer: Value = serde_json::from_str(&body).map_err(wrong)?;
        if status == 413 {
            return Ok(Read::Refused);
        }
        if status >= 400 {
            let problems = answer["problems"].as_array().map_or(&[][..], Vec::as_slice);
            let placed = problems
                .iter()
                .all(|problem| problem["line"].as_u64() >= Some(1) && problem["pointer"].is_string());
            prop_assert!(!problems.is_empty() && placed, "{body}");
            return Ok(Read::Refused);
        }
        // What is accepted can be pushed, read and started; each on a store of its own, which it leaves small.
        let pushed = routes();
        let (status, body) = runtime.block_on(asked(&pushed, post("workflow-definitions", &text)));
        prop_assert!(status == 201, "{status} {body}");
        let id = answer["id"].as_str().unwrap_or_default();
        let start = serde_json::json!({"definitionId": id, "input": {"n": 1}}).to_string();
        let (status, body) = runtime.block_on(asked(&pushed, post("workflow-runs", &start)));
        prop_assert!(matches!(status, 201 | 422), "{status} {body}");
        Ok(Read::Taken)
    });
    println!("the slowest check took {} ms", slowest.get());
    played
}

/// Most that checks may add to the memory of a server, in bytes.
const CHECKED_IN: u64 = 64 << 20;

/// By a server of its own, whose most memory is what the largest of them took: each is checked in less than that.
fn definitions_in_memory() -> Result<(), String> {
    let mut server = Process::serve(&["--store", "memory:"], &[("SEMEL_AUTH", "none")]);
    server.drain();
    let (runtime, api) = (runtime(), Api::at(server.base()));
    let check = |text: String| runtime.block_on(api.post("/workflow-definitions?check=true", text)).status;
    // What a server has once it has checked something, and the largest document that is read at all.
    let small = right_definitions().remove(0);
    assert!(check(small) < 500);
    let before = server.most_memory();
    let large =
        (0..1_000).map(|n| format!("  - {{name: s{n}, set: {{a: '{{{{ {} }}}}'}}}}\n", "[[[1]]]".repeat(50)));
    assert!(check(format!("semel: 1\nname: a\nsteps:\n{}", large.collect::<String>())) < 500);
    let played = play(&damaged_text(right_definitions()), |text| {
        let status = check(text);
        prop_assert!(status < 500, "{status}");
        Ok(if status < 300 { Read::Taken } else { Read::Refused })
    });
    let grown = server.most_memory() - before;
    println!("checks took at most {} KiB more", grown >> 10);
    if grown > CHECKED_IN {
        return Err(format!("checks took {grown} bytes more"));
    }
    played
}

/// Secrets in their places.
const SECRETS: [&str; 2] = ["\nroot-token = \"c4n4ry-0123456789\"\n", "\"postgres://semel:c4n4ry@"];

fn configurations() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("semel.toml");
    let corpus = [
        "listen = \"127.0.0.1:7700\"\nstore = \"semel.db\"\nauth = \"keys\"\nroot-token = \"c4n4ry-0123456789\"\n",
        "[limits]\nrate = 100\nconnections = 1000\nheader-timeout = \"10s\"\nrequest-timeout = \"30s\"\ndrain = \"1m\"\n",
        "store = \"postgres://semel:c4n4ry@127.0.0.1/semel\"\n[tls]\ncert = \"a.pem\"\nkey = \"b.pem\"\n",
        "[cors]\norigins = [\"https://app.example.com\"]\n[log]\nlevel = \"info\"\nformat = \"json\"\n",
    ];
    play(&damaged_text(corpus.map(str::to_owned).to_vec()), |text| {
        std::fs::write(&path, &text).map_err(wrong)?;
        let loaded = Config::load(Some(&path), std::iter::empty(), std::iter::empty());
        let (said, read) = match loaded {
            Ok(config) => (config.shown(), Read::Taken),
            Err(refused) => (refused.to_string(), Read::Refused),
        };
        prop_assert!(!said.is_empty());
        // A secret that the damage has put where none belongs cannot be known as one.
        let at_home = |secret: &&&str| text.contains(**secret);
        if SECRETS.iter().filter(at_home).count() == text.matches("c4n4ry").count() {
            prop_assert!(!said.contains("c4n4ry"), "{said}");
        }
        Ok(read)
    })
}
