//! An owner that has lost its run without noticing. What it has sent, or the answer to it, is held on its line while another owner goes
//! on with the run, and comes through afterwards.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::clock::SystemClock;
use semel::engine::{Builder, Limits};
use semel::rules::entry::Outcome;
use semel::rules::status::Status;
use semel::store::layer::{Layered, StoreCall, StoreLayer, StoreWork};
use semel::store::memory::MemoryStore;
use semel::store::{Answer, Store};
use semel::{Engine, RunHandle, WorkflowRef};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Short, so that another engine takes over soon.
pub(crate) const LEASE: Duration = Duration::from_millis(500);

/// A store whose engine hears nothing of it once it is cut off: when the switch is on.
pub(crate) fn cut_off(store: &Arc<dyn Store>) -> (Arc<dyn Store>, Arc<AtomicBool>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    (Arc::new(Layered(CutOff { store: store.clone(), is_cut: is_cut.clone() })), is_cut)
}

struct CutOff {
    store: Arc<dyn Store>,
    is_cut: Arc<AtomicBool>,
}

impl StoreLayer for CutOff {
    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn around<T: Send + 'static>(&self, _: StoreCall, work: StoreWork<T>) -> Answer<'_, T> {
        let (store, is_cut) = (self.store.clone(), self.is_cut.clone());
        Box::pin(async move {
            if is_cut.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            work(store).await
        })
    }
}

/// What is held on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldPart {
    Request,
    Answer,
}

/// What holds: the bytes that a request has in it, and which part of it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) marker: &'static str,
    pub(crate) part: HeldPart,
}

/// A line to a server, on which the first request with the marker is held.
pub(crate) struct HeldLine {
    address: SocketAddr,
    shared: Arc<LineState>,
}

struct LineState {
    hold: Hold,
    /// Whether a request has been chosen.
    is_taken: AtomicBool,
    /// Whether something is held.
    met: watch::Sender<bool>,
    let_go: watch::Sender<bool>,
    /// Whether the held request was answered, or its connection has ended, after it was let go.
    answered: watch::Sender<bool>,
}

impl LineState {
    async fn until_let_go(&self) {
        self.met.send_replace(true);
        until(&self.let_go).await;
    }
}

async fn until(sign: &watch::Sender<bool>) {
    sign.subscribe().wait_for(|is_so| *is_so).await.expect("its sender is here");
}

impl HeldLine {
    /// A line to a host and port.
    pub(crate) async fn to(far: &str, hold: Hold) -> Self {
        let (met, let_go, answered) =
            (watch::Sender::new(false), watch::Sender::new(false), watch::Sender::new(false));
        let shared = Arc::new(LineState { hold, is_taken: AtomicBool::new(false), met, let_go, answered });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (told, far) = (shared.clone(), far.to_owned());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, far.clone(), told.clone()));
            }
        });
        Self { address, shared }
    }

    /// Where the line begins.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Lets what is held come through, and waits until it was answered.
    async fn let_go(&self) {
        self.shared.let_go.send_replace(true);
        if self.shared.hold.part == HeldPart::Request {
            until(&self.shared.answered).await;
        }
    }
}

/// Carries a connection both ways.
async fn carry(near: TcpStream, far: String, shared: Arc<LineState>) {
    let Ok(far) = TcpStream::connect(far).await else { return };
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let is_held = AtomicBool::new(false);
    let marker = shared.hold.marker.as_bytes();
    let there = async {
        let (mut buffer, mut tail) = (vec![0; 64 * 1024], Vec::new());
        while let Ok(read @ 1..) = near_in.read(&mut buffer).await {
            tail.extend_from_slice(&buffer[..read]);
            if tail.windows(marker.len()).any(|window| window == marker)
                && !shared.is_taken.swap(true, Ordering::SeqCst)
            {
                is_held.store(true, Ordering::SeqCst);
                if shared.hold.part == HeldPart::Request {
                    shared.until_let_go().await;
                }
            }
            tail.drain(..tail.len().saturating_sub(marker.len()));
            if far_out.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        // The other side may have ended before.
        drop(far_out.shutdown().await);
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = far_in.read(&mut buffer).await {
            if is_held.load(Ordering::SeqCst) {
                shared.until_let_go().await;
                shared.answered.send_replace(true);
            }
            if near_out.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        drop(near_out.shutdown().await);
    };
    tokio::join!(there, back);
    if is_held.load(Ordering::SeqCst) {
        shared.answered.send_replace(true);
    }
}

/// How an engine reaches the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Direct,
    /// By the line on which a request is held.
    Held,
}

/// The outcome of the run.
#[derive(Debug)]
pub(crate) struct Overtaken {
    pub(crate) outcome: Outcome,
    /// Path of the step that was in doubt; none if there was no doubt.
    pub(crate) doubt: Option<String>,
}

/// Plays a run whose first owner is overtaken while the line holds what it has sent, or the answer. A step in doubt is settled when
/// everything has come through: `happened` says with which value, or that it did not take place.
pub(crate) async fn overtaken(
    line: &HeldLine,
    workflow: WorkflowRef<Value, Value>,
    build: impl Fn(Builder, Route) -> Builder,
    happened: impl Fn() -> Option<Value>,
) -> Overtaken {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(SystemClock::new())));
    let (its_store, is_cut) = cut_off(&store);
    let open = async |store: Arc<dyn Store>, route: Route| {
        let limits = Limits { lease: LEASE, ..Limits::default() };
        build(Engine::builder().store(store).limits(limits), route).open().await.expect("an engine")
    };
    let first = open(its_store, Route::Held).await;
    let id = first.start(workflow, json!({})).key("k").await.expect("it is started").id();
    until(&line.shared.met).await;
    is_cut.store(true, Ordering::SeqCst);
    let second = open(store, Route::Direct).await;
    let run = second.run(id);
    let status = run.reached(Status::Paused).await.expect("it is there");
    line.let_go().await;
    let doubt = if status == Status::Paused { Some(settle(&run, happened()).await) } else { None };
    let outcome = run.outcome().await.expect("it ends");
    first.crash().await;
    Overtaken { outcome, doubt }
}

/// Resolves the step in doubt; gives its path.
async fn settle(run: &RunHandle<Value>, happened: Option<Value>) -> String {
    let doubts = run.doubts().await.expect("it is there");
    let [doubt] = &doubts[..] else { panic!("one step is in doubt: {doubts:?}") };
    let settled = match happened {
        Some(value) => run.happened(&doubt.step, &value).await,
        None => run.did_not_happen(&doubt.step).await,
    };
    settled.expect("it is taken");
    doubt.step.clone()
}
