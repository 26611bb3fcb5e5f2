//! Streams of events that are not read: what they hold has a bound, and others of their workspace end and go on later.

#![expect(clippy::unwrap_used, reason = "a test that fails by unwrap says where")]

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use reqwest::{Method, Response};
use semel::clock::{Clock as _, Time};
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::control::{Control, ControlAction};
use semel::rules::entry::Entry;
use semel::rules::json::Payload;
use semel::rules::ledger::Ledger;
use semel::rules::path::{Name, Visit};
use semel::rules::start::Start;
use semel::store::memory::MemoryStore;
use semel::store::{Lease, LeaseAct, Store};
use semel::testing::ManualClock;
use semel_server::app::App;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{Api, runtime};

/// Entries of the run, each of which is almost as large as a value may be: far more than sockets take.
const ENTRIES: usize = 12;
const LARGE: usize = 1_900_000;
/// Streams that are not read. Each holds one event, and eight of those fill the memory of a workspace.
const UNREAD: usize = 12;
/// Time without news after which the clock is moved.
const ROUND: Duration = Duration::from_millis(20);

pub(crate) fn trials() -> Vec<Trial> {
    crate::served_trials![a_stream_that_is_not_read_ends_and_goes_on]
}

/// A run with large entries that has ended; its id, and the number of its entries.
async fn long_run(store: &dyn Store, clock: &ManualClock) -> (RunId, u64) {
    let (node, run) = (NodeId(clock.uuid()), RunId(clock.uuid()));
    store.lease(Lease { node, act: LeaseAct::Join(Duration::from_hours(1)) }).await.unwrap();
    let start =
        Start::new(WorkspaceId::DEFAULT, run, Name::new("w").unwrap(), Payload::parse("{}").unwrap(), None);
    let started = store.start(Start { claim: Some(node), ..start }).await.unwrap();
    let mut ledger = Ledger::read(started.run, started.entries).unwrap();
    let value = Payload::parse(&format!("\"{}\"", "x".repeat(LARGE))).unwrap();
    for n in 0..ENTRIES {
        let at = Visit::parse(&format!("step{n}")).unwrap();
        ledger.record(Entry::Recorded { at, value: value.clone(), failed: None }).unwrap();
        let saved = store.commit(ledger.commit().unwrap()).await.unwrap();
        ledger.settle(&saved.settled).unwrap();
    }
    let action = ControlAction::Cancel { reason: "enough".to_owned() };
    let cancel = Control {
        workspace: WorkspaceId::DEFAULT,
        run,
        action,
        by: "ann".to_owned(),
        id: None,
        expected: None,
    };
    (run, store.control(cancel).await.unwrap().run.state.version)
}

/// A stream of which only the head is read.
async fn unread(api: &Api, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // What the kernel takes is not in the server's memory.
    socket.set_recv_buffer_size(4_096).unwrap();
    let address = api.url().trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream
        .write_all(format!("GET /api/v1{path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream
}

/// A reader of events that goes on where it was.
struct Reading {
    api: Api,
    path: String,
    /// The ids of the events that it has read.
    numbers: Vec<u64>,
}

impl Reading {
    /// Reads one stream to its end, and moves the clock where nothing comes.
    async fn follow(&mut self, clock: &ManualClock) {
        let request = self.api.request(Method::GET, &self.path);
        let last = self.numbers.last().copied().unwrap_or(0);
        let mut stream: Response = request.header("last-event-id", last).send().await.unwrap();
        assert_eq!(stream.status().as_u16(), 200);
        let mut text = Vec::new();
        loop {
            match tokio::time::timeout(ROUND, stream.chunk()).await {
                Ok(chunk) => match chunk.unwrap() {
                    Some(chunk) => text.extend(chunk),
                    None => break,
                },
                Err(_) => clock.advance(Duration::from_secs(1)),
            }
        }
        let ids = String::from_utf8(text).unwrap();
        self.numbers.extend(
            ids.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse::<u64>().unwrap()),
        );
    }
}

async fn a_stream_that_is_not_read_ends_and_goes_on() {
    let clock = Arc::new(ManualClock::new(Time(1_000_000), 1));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone()));
    let (run, version) = long_run(&*store, &clock).await;
    let api = Api::serve_app(App::open(store, clock.clone())).await;
    let path = format!("/workflow-runs/{run}/events");
    let mut held = Vec::new();
    for _ in 0..UNREAD {
        held.push(unread(&api, &path).await);
    }
    let reading = || Reading { api: api.clone(), path: path.clone(), numbers: Vec::new() };
    let all: Vec<u64> = (1..=version).collect();
    // Until those streams hold all the memory, a reader gets everything.
    let ends = async {
        loop {
            let (mut reader, before) = (reading(), clock.now());
            reader.follow(&clock).await;
            if reader.numbers != all {
                return (reader, clock.now().0 - before.0);
            }
        }
    };
    let (mut reader, took) = tokio::time::timeout(Duration::from_mins(2), ends).await.unwrap();
    assert!(took >= 10_000, "it ended after {took} ms without an event");
    drop(held);
    let goes_on = async {
        while reader.numbers.len() < all.len() {
            reader.follow(&clock).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(2), goes_on).await.unwrap();
    assert_eq!(reader.numbers, all, "without gaps and repeats");
}
