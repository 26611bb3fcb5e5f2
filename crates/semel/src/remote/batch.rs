//! Calls that share a request: while one is under way the next one fills up. There are no timers.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::client::{Does, HttpClient};
use super::wire::{Answers, BODY_BYTES, MOST};
use crate::error::{Error, Result};

/// Concurrent requests: the server writes one to the store while it reads another.
const LANES: usize = 2;
/// Size in bytes at which a request is full: each item waits for the whole request.
const FULL: usize = 1024 * 1024;
/// Bytes around the items.
const FRAME: usize = 64;

/// One item as JSON, and the caller that waits for its answer.
struct Item<A> {
    json: Vec<u8>,
    reply: oneshot::Sender<Result<A>>,
}

/// The items of one kind of call that wait for a request.
pub(super) struct Batches<A> {
    waiting: mpsc::UnboundedSender<Item<A>>,
}

impl<A: DeserializeOwned + Send + 'static> Batches<A> {
    /// Requests to this path, whose body is a list of this name. They end when this is dropped.
    pub(super) fn new(client: &Arc<HttpClient>, path: &'static str, list: &'static str) -> Self {
        let (waiting, queue) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..LANES {
            tokio::spawn(lane(client.clone(), path, list, queue.clone()));
        }
        Self { waiting }
    }

    /// Sends an item with the next request.
    pub(super) fn ask<T: Serialize>(&self, item: &T) -> impl Future<Output = Result<A>> + Send + use<A, T> {
        let asked = serde_json::to_vec(item).map_err(|e| Error::Validation(e.to_string())).and_then(|json| {
            if json.len() + FRAME > BODY_BYTES {
                let most = format!("this has {} bytes; at most {BODY_BYTES} travel at once", json.len());
                return Err(Error::Validation(most));
            }
            let (reply, answer) = oneshot::channel();
            let gone = |_| Error::Unavailable("the runtime of this store has ended".into());
            self.waiting.send(Item { json, reply }).map_err(gone)?;
            Ok(answer)
        });
        async move {
            // It may have been sent, if the runtime ended meanwhile.
            asked?.await.unwrap_or_else(|_| Err(Error::Unknown("the runtime of this store has ended".into())))
        }
    }
}

async fn lane<A: DeserializeOwned>(
    client: Arc<HttpClient>,
    path: &'static str,
    list: &'static str,
    queue: Arc<Mutex<mpsc::UnboundedReceiver<Item<A>>>>,
) {
    let mut left = None;
    loop {
        let (first, mut queue) = match left.take() {
            // Only this lane has it. It does not wait for the queue, where another one may wait for the next item.
            Some(item) => (item, queue.try_lock().ok()),
            None => {
                let mut queue = queue.lock().await;
                let Some(item) = queue.recv().await else { return };
                (item, Some(queue))
            }
        };
        let mut body = format!("{{\"{list}\":[").into_bytes();
        let mut replies = Vec::new();
        let mut next = Some(first);
        while let Some(item) = next.take() {
            if !replies.is_empty() {
                body.push(b',');
            }
            body.extend_from_slice(&item.json);
            replies.push(item.reply);
            if replies.len() == MOST || body.len() > FULL {
                break;
            }
            match queue.as_mut().and_then(|queue| queue.try_recv().ok()) {
                // It is the first item of the next request.
                Some(item) if body.len() + item.json.len() + FRAME > BODY_BYTES => left = Some(item),
                item => next = item,
            }
        }
        drop(queue);
        body.extend_from_slice(b"]}");
        answer(client.post::<Answers<A>>(path, body, Does::Writes).await, replies);
    }
}

/// Hands the answers out. Callers that were dropped meanwhile get none.
fn answer<A>(answers: Result<Answers<A>>, replies: Vec<oneshot::Sender<Result<A>>>) {
    match answers {
        Ok(Answers { answers }) if answers.len() == replies.len() => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                drop(reply.send(answer.into()));
            }
        }
        Ok(_) => tell(replies, || Error::Unknown("the server did not answer everything".into())),
        Err(error) => {
            let said = error.to_string();
            tell(replies, || match &error {
                Error::Unavailable(_) => Error::Unavailable(said.clone().into()),
                Error::Unknown(_) => Error::Unknown(said.clone().into()),
                // The whole request was refused, by its size or its credential: nothing was changed.
                _ => Error::Validation(said.clone()),
            });
        }
    }
}

fn tell<A>(replies: Vec<oneshot::Sender<Result<A>>>, error: impl Fn() -> Error) {
    for reply in replies {
        drop(reply.send(Err(error())));
    }
}
