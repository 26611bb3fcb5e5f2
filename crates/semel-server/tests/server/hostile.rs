//! A tenant that holds all that it may: streams that it does not read, bodies that it does not finish, registrations, waiting
//! claims. The server's memory stays small, and the neighbour hardly notices. `make hostile` measures longer, in
//! a release build.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]
#![expect(clippy::disallowed_methods, reason = "it measures how long calls take")]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use libtest_mimic::Trial;
use reqwest::{Body, Client};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::process::Process;
use crate::served::Token;
use crate::world::runtime;

const ROOT: &str = "root-token-of-the-tests";
/// Workers of the hostile tenant that wait for due runs.
const LISTENERS: usize = 500;
/// Workers of the hostile tenant that say as much of themselves as they may.
const LARGE_WORKERS: usize = 200;
/// The server's most memory.
const MEMORY: u64 = 512 * 1024 * 1024;
/// Starts that the neighbour makes, if nothing is said.
const STARTS: usize = 100;
/// What a start may take in a short run, in a debug build beside all other tests: enough to tell a neighbour that is slowed down
/// from one that is shut out. A long run has no such allowance.
const ALLOWANCE: Duration = Duration::from_secs(2);

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![a_hostile_tenant_takes_neither_memory_nor_time]
}

async fn a_hostile_tenant_takes_neither_memory_nor_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("semel.db").display());
    let server = Process::serve(
        &["--store", &store],
        &[("SEMEL_ROOT_TOKEN", ROOT), ("SEMEL_LOG", "warn,semel_server::cli::serve=info")],
    );
    let root = server.caller(ROOT);
    for name in ["hostile", "neighbour"] {
        root.post("/workspaces", &json!({"name": name})).await.ok();
    }
    let (_, hostile) = root.key(Some("hostile"), &["start", "read", "worker"]).await;
    let (_, neighbour) = root.key(Some("neighbour"), &["start", "admin"]).await;
    let long = std::env::var("SEMEL_TEST_HOSTILE").ok().and_then(|starts| starts.parse().ok());
    let starts = long.unwrap_or(STARTS);
    let quiet = p99(&neighbour, starts).await;
    let _held = Held::take(&server.base(), &hostile).await;
    let disturbed = p99(&neighbour, starts).await;
    let memory = server.most_memory();
    println!("memory {} MiB, p99 {quiet:?} alone, {disturbed:?} beside", memory / 1024 / 1024);
    assert!(memory <= MEMORY, "{memory} bytes");
    let allowed = if long.is_some() { quiet * 2 } else { (quiet * 2).max(ALLOWANCE) };
    assert!(
        disturbed <= allowed,
        "start and cancel take {disturbed:?} beside a hostile tenant, {quiet:?} alone"
    );
}

/// How long 99 of 100 starts take at most, each with the cancel of its run.
async fn p99(key: &Token, starts: usize) -> Duration {
    let mut took = Vec::new();
    for _ in 0..starts {
        let begun = Instant::now();
        let run = key.post("/workflow-runs", &json!({"workflow": "w"})).await.run_id();
        key.post(&format!("/workflow-runs/{run}/cancel"), &json!({})).await.ok();
        took.push(begun.elapsed());
    }
    took.sort();
    took[starts * 99 / 100 - 1]
}

/// All that the hostile tenant holds.
struct Held {
    _connections: Vec<TcpStream>,
    _claims: JoinSet<()>,
    _bodies: JoinSet<()>,
}

impl Held {
    async fn take(base: &str, key: &Token) -> Self {
        let mut connections = Vec::new();
        let large = "x".repeat(1_900_000);
        let mut runs = Vec::new();
        for _ in 0..5 {
            let body = json!({"workflow": "w", "input": large});
            runs.push(key.post("/workflow-runs", &body).await.run_id());
        }
        // Streams that are never read: of large events, and of wakes.
        for number in 0..300 {
            let path = match number % 3 {
                0 => "/workers/wakes".to_owned(),
                _ => format!("/workflow-runs/{}/events", runs[number % runs.len()]),
            };
            connections.push(begun(base, key, &format!("GET /api/v1{path}"), "").await);
        }
        // Bodies that never end.
        for _ in 0..30 {
            let call = "POST /api/v1/workers/commit";
            let mut connection = begun(base, key, call, "content-length: 15728641\r\n").await;
            let chunk = vec![b' '; 1024 * 1024];
            for _ in 0..15 {
                // One that is refused may be closed.
                if connection.write_all(&chunk).await.is_err() {
                    break;
                }
            }
            connections.push(connection);
        }
        let node = |number: usize| format!("node_01j0000000e008000000000{number:03}");
        for number in 0..LARGE_WORKERS {
            let serves: Vec<_> = (0..150).map(|n| format!("{n:0>368}")).collect();
            let worker =
                json!({"node": node(LISTENERS + number), "name": "w", "serves": serves, "leaseMs": 600_000});
            key.post("/workers", &worker).await;
        }
        for number in 0..LISTENERS {
            let worker = json!({"node": node(number), "name": "w", "serves": [], "leaseMs": 600_000});
            key.post("/workers", &worker).await.ok();
        }
        let mut claims = JoinSet::new();
        for number in 0..LISTENERS {
            let workflow = |n| json!({"workflow": format!("w{number}-{n}"), "workflowVersion": "1"});
            // Some ask for as many workflows as a claim may have.
            let workflows: Vec<_> = (0..if number < 100 { 256 } else { 1 }).map(workflow).collect();
            let claim = json!({"node": node(number), "workflows": workflows, "limit": 1, "waitMs": 60_000});
            let key = key.clone();
            claims.spawn(async move { drop(key.post("/workers/claim", &claim).await) });
        }
        Self { _connections: connections, _claims: claims, _bodies: unfinished(base, key) }
    }
}

/// Bodies over HTTP/2 that never end, all in one connection.
fn unfinished(base: &str, key: &Token) -> JoinSet<()> {
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let mut bodies = JoinSet::new();
    for _ in 0..100 {
        let chunks = stream::iter((0..15).map(|_| Ok::<_, Infallible>(vec![b' '; 1024 * 1024])));
        let body = Body::wrap_stream(chunks.chain(stream::pending()));
        let call = client.post(format!("{base}/api/v1/workers/commit")).bearer_auth(key.text()).body(body);
        bodies.spawn(async move { drop(call.send().await) });
    }
    bodies
}

/// A call whose head was sent, and whose answer is not read.
async fn begun(base: &str, key: &Token, call: &str, headers: &str) -> TcpStream {
    let mut connection = TcpStream::connect(base.trim_start_matches("http://")).await.unwrap();
    let token = key.text();
    let head =
        format!("{call} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{headers}\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}
