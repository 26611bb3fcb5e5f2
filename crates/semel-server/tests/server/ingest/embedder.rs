//! A server that plays a model of embeddings and counts what it is asked. It has a thread of its own and survives every crash of an
//! engine.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) key: String,
    pub(super) texts: Vec<String>,
}

#[derive(Clone)]
pub(super) struct Embedder(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    asked: Mutex<Vec<Asked>>,
    /// How many answers are lost, before the others are given.
    lost: Mutex<usize>,
    /// Whether the next answer waits for [`Embedder::release`].
    held: Mutex<bool>,
    arrived: Notify,
    released: Notify,
    _stop: oneshot::Sender<()>,
}

impl Embedder {
    pub(super) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("it is a socket");
        let (stop, stopped) = oneshot::channel();
        let inner = Inner {
            address: listener.local_addr().expect("it is bound"),
            asked: Mutex::default(),
            lost: Mutex::default(),
            held: Mutex::default(),
            arrived: Notify::new(),
            released: Notify::new(),
            _stop: stop,
        };
        let embedder = Self(Arc::new(inner));
        // The thread must not keep alive what stops it.
        let weak = Arc::downgrade(&embedder.0);
        std::thread::spawn(move || {
            crate::world::runtime().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it is a listener");
                let router = Router::new().fallback(answer).with_state(weak);
                tokio::select! {
                    served = axum::serve(listener, router).into_future() => served.expect("serving goes on"),
                    _ = stopped => {}
                }
            });
        });
        embedder
    }

    /// Address below which its paths are.
    pub(super) fn base(&self) -> String {
        format!("http://{}/v1", self.0.address)
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.0.asked.lock().expect("no thread panics while it holds the lock")
    }

    /// The texts that were sent since the last time that this was asked.
    pub(super) fn texts(&self) -> Vec<String> {
        self.asked().drain(..).flat_map(|asked| asked.texts).collect()
    }

    /// How many keys were used, and how many calls there were.
    pub(super) fn counts(&self) -> (usize, usize) {
        let asked = self.asked();
        let mut keys: Vec<&str> = asked.iter().map(|asked| asked.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        (keys.len(), asked.len())
    }

    /// Loses the next answers.
    pub(super) fn lose(&self, answers: usize) {
        *self.0.lost.lock().expect("no thread panics while it holds the lock") = answers;
    }

    /// Lets the next answer wait for [`Self::release`].
    pub(super) fn hold(&self) {
        *self.0.held.lock().expect("no thread panics while it holds the lock") = true;
    }

    /// Waits until the call is there whose answer waits.
    pub(super) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    pub(super) fn release(&self) {
        self.0.released.notify_one();
    }

    fn is_lost(&self) -> bool {
        let mut lost = self.0.lost.lock().expect("no thread panics while it holds the lock");
        let is_lost = *lost > 0;
        *lost = lost.saturating_sub(1);
        is_lost
    }

    async fn wait(&self) {
        let is_held =
            std::mem::take(&mut *self.0.held.lock().expect("no thread panics while it holds the lock"));
        if is_held {
            self.0.arrived.notify_one();
            self.0.released.notified().await;
        }
    }
}

/// The vector of a text: of as many numbers as the name of the model says, `small-2` of two.
pub(super) fn vector(model: &str, text: &str) -> Vec<f64> {
    let length = model.rsplit('-').next().and_then(|length| length.parse().ok()).unwrap_or(2);
    let sum: u32 = text.bytes().map(u32::from).sum();
    (0..length).map(|n| f64::from(sum % 1000) + f64::from(n) / 8.0).collect()
}

async fn answer(State(embedder): State<std::sync::Weak<Inner>>, request: Request) -> Response {
    let Some(embedder) = embedder.upgrade().map(Embedder) else {
        return axum::http::StatusCode::GONE.into_response();
    };
    let key = request.headers()["idempotency-key"].to_str().expect("an effect key").to_owned();
    assert_eq!(request.uri().path(), "/v1/embeddings");
    let body = to_bytes(request.into_body(), 8 << 20).await.expect("a body");
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let model = body["model"].as_str().expect("a model");
    let texts: Vec<String> = serde_json::from_value(body["input"].clone()).expect("texts");
    let data: Vec<_> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"index": index, "embedding": vector(model, text)}))
        .collect();
    let answer = json!({"data": data, "usage": {"prompt_tokens": 10 * texts.len()}});
    embedder.asked().push(Asked { key, texts });
    if embedder.is_lost() {
        let broken: Result<String, std::io::Error> = Err(std::io::Error::other("the line is cut"));
        return Response::new(Body::from_stream(stream::iter([broken])));
    }
    embedder.wait().await;
    ([("content-type", "application/json")], answer.to_string()).into_response()
}
