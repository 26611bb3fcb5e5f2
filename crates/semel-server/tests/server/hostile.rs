//! A tenant that holds all that it may: streams that it does not read, bodies that it does not finish, registrations, waiting
//! claims. The server's memory stays small, and the neighbour hardly notices. `make hostile` measures longer, in
//! a release build.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]
#![expect(clippy::disallowed_methods, reason = "it measures how long calls take")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use libtest_mimic::Trial;
use reqwest::{Body, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
/// Unfinished bodies over HTTP/2 that have room.
const BODIES: usize = 4;
/// Unfinished bodies over HTTP/2 that have none, and as many over HTTP/1.
const REFUSED: usize = 12;
/// The size of each unfinished body, in mebibytes.
const BODY: usize = 15;
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
    let mut held = Held::take(&server.base(), &hostile).await;
    held.is_all_there();
    let disturbed = p99(&neighbour, starts).await;
    held.is_all_there();
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
    /// Claims that wait. One that is refused ends with its status.
    claims: JoinSet<u16>,
    /// Bodies over HTTP/2 that have room and never end. One that is refused ends with its status.
    bodies: JoinSet<u16>,
}

impl Held {
    async fn take(base: &str, key: &Token) -> Self {
        let sent = Arc::new(AtomicUsize::new(0));
        let bodies = unfinished(base, key, BODIES, &sent);
        let all_sent = async {
            while sent.load(Ordering::Relaxed) < BODIES {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), all_sent).await.expect("the server takes the bodies");
        // The last of what was sent arrives meanwhile.
        let connections = streams(base, key).await;
        // For more there is no room.
        let refused = unfinished(base, key, REFUSED, &sent);
        unfinished_calls(base, key).await;
        let refused = refused.join_all().await;
        assert!(refused.iter().all(|status| *status == 429), "{refused:?}");
        register(key).await;
        Self { _connections: connections, claims: claims(key), bodies }
    }

    /// What is held counts for the measurement only if nothing of it was refused.
    fn is_all_there(&mut self) {
        let refused = [self.claims.try_join_next(), self.bodies.try_join_next()];
        assert!(refused.iter().all(Option::is_none), "claims and bodies end with {refused:?}");
        assert_eq!((self.claims.len(), self.bodies.len()), (LISTENERS, BODIES));
    }
}

/// Streams that are opened and never read: of large events, and of wakes.
async fn streams(base: &str, key: &Token) -> Vec<TcpStream> {
    let large = "x".repeat(1_900_000);
    let mut runs = Vec::new();
    for _ in 0..5 {
        let body = json!({"workflow": "w", "input": large});
        runs.push(key.post("/workflow-runs", &body).await.run_id());
    }
    let (mut open, mut accepted) = (Vec::new(), 0);
    for number in 0..300 {
        let path = match number % 3 {
            0 => "/workers/wakes".to_owned(),
            _ => format!("/workflow-runs/{}/events", runs[number % runs.len()]),
        };
        let mut stream = begun(base, key, &format!("GET /api/v1{path}"), "").await;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        accepted += usize::from(&answer == b"HTTP/1.1 200");
        open.push(stream);
    }
    assert!(accepted >= 150, "only {accepted} streams were accepted");
    open
}

/// Calls whose bodies never end, and for which there is no room.
async fn unfinished_calls(base: &str, key: &Token) {
    let mut open = Vec::new();
    for _ in 0..REFUSED {
        let length = BODY * 1024 * 1024 + 1;
        let call = "POST /api/v1/workers/commit";
        let mut connection = begun(base, key, call, &format!("content-length: {length}\r\n")).await;
        let chunk = vec![b' '; 1024 * 1024];
        for _ in 0..BODY {
            // One that is refused may be closed.
            if connection.write_all(&chunk).await.is_err() {
                break;
            }
        }
        open.push(connection);
    }
    for mut connection in open {
        let mut answer = [0; 12];
        let is_closed = connection.read_exact(&mut answer).await.is_err();
        assert!(is_closed || &answer == b"HTTP/1.1 429", "{}", String::from_utf8_lossy(&answer));
    }
}

fn node(number: usize) -> String {
    format!("node_01j0000000e008000000000{number:03}")
}

/// Registers workers: those that wait for work, then others that say as much as they may, until the bound is reached.
async fn register(key: &Token) {
    for number in 0..LISTENERS {
        let worker = json!({"node": node(number), "name": "w", "serves": [], "leaseMs": 600_000});
        key.post("/workers", &worker).await.ok();
    }
    let mut accepted = 0;
    for number in 0..LARGE_WORKERS {
        let serves: Vec<_> = (0..150).map(|n| format!("{n:0>368}")).collect();
        let worker =
            json!({"node": node(LISTENERS + number), "name": "w", "serves": serves, "leaseMs": 600_000});
        match key.post("/workers", &worker).await.status {
            200 => accepted += 1,
            status => assert_eq!(status, 429),
        }
    }
    assert!((100..LARGE_WORKERS).contains(&accepted), "{accepted} large registrations were accepted");
}

/// Claims that wait for due runs, again and again.
fn claims(key: &Token) -> JoinSet<u16> {
    let mut claims = JoinSet::new();
    for number in 0..LISTENERS {
        let workflow = |n| json!({"workflow": format!("w{number}-{n}"), "workflowVersion": "1"});
        // Some ask for as many workflows as a claim may have.
        let workflows: Vec<_> = (0..if number < 100 { 256 } else { 1 }).map(workflow).collect();
        let claim = json!({"node": node(number), "workflows": workflows, "limit": 1, "waitMs": 60_000});
        let key = key.clone();
        claims.spawn(async move {
            loop {
                let status = key.post("/workers/claim", &claim).await.status;
                if status != 200 {
                    return status;
                }
            }
        });
    }
    claims
}

/// Bodies over HTTP/2 that never end, all in one connection; `sent` counts those of which everything else was sent. One whose time
/// is over is sent again.
fn unfinished(base: &str, key: &Token, count: usize, sent: &Arc<AtomicUsize>) -> JoinSet<u16> {
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let mut bodies = JoinSet::new();
    for _ in 0..count {
        let (client, sent) = (client.clone(), sent.clone());
        let (url, token) = (format!("{base}/api/v1/workers/commit"), key.text().to_owned());
        bodies.spawn(async move {
            loop {
                let sent = sent.clone();
                let chunks = stream::iter((0..BODY).map(|_| Ok::<_, Infallible>(vec![b' '; 1024 * 1024])));
                let end = stream::once(async move {
                    sent.fetch_add(1, Ordering::Relaxed);
                    std::future::pending().await
                });
                let call = client.post(&url).bearer_auth(&token).body(Body::wrap_stream(chunks.chain(end)));
                let status = call.send().await.unwrap().status().as_u16();
                if status != 503 {
                    return status;
                }
            }
        });
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
