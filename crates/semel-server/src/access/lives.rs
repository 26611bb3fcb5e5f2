//! Whether keys with open streams are still valid. A stream outlives the call that opened it, so the key is looked up
//! again and again while the stream is open: on every server it ends within a second after its key was revoked or expired.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use semel::clock::Clock;
use semel::id::ApiKeyId;
use semel::store::Store;
use tokio::sync::{Notify, watch};

use super::records::ApiKey;
use crate::app::App;
use crate::records;

/// How often a key with open streams is looked up. Less than a second, because a revocation is effective within one on
/// every server; one look serves all streams of a key.
const LOOK: Duration = Duration::from_millis(500);

/// The validity of a credential.
#[derive(Clone, Debug)]
pub(crate) struct Life(Option<Arc<Watched>>);

/// A key that has open streams.
#[derive(Debug)]
struct Watched {
    over: watch::Sender<bool>,
    /// Requests a look-up at once.
    asked: Arc<Notify>,
}

/// The keys that have open streams.
#[derive(Debug, Default)]
pub(super) struct Lives(Mutex<HashMap<ApiKeyId, Weak<Watched>>>);

impl Life {
    /// Of a caller without a key: root, and every caller of a server without authentication.
    pub(super) fn endless() -> Self {
        Self(None)
    }

    /// Whether the key is refused by now.
    pub(crate) fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|watched| *watched.over.borrow())
    }

    /// Resolves when the key is refused.
    pub(crate) async fn over(&self) {
        let Some(watched) = &self.0 else { return std::future::pending().await };
        // It fails only when the sender is gone, and the sender is here.
        drop(watched.over.subscribe().wait_for(|over| *over).await);
    }
}

impl Lives {
    /// The validity of a key; all streams of one key share it.
    pub(super) fn of(&self, app: &App, id: ApiKeyId) -> Life {
        let mut lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = lives.get(&id).and_then(Weak::upgrade) {
            return Life(Some(watched));
        }
        lives.retain(|_, watched| watched.strong_count() > 0);
        let watched = Arc::new(Watched { over: watch::Sender::new(false), asked: Arc::default() });
        lives.insert(id, Arc::downgrade(&watched));
        tokio::spawn(follow(app.store.clone(), app.clock.clone(), id, Arc::downgrade(&watched)));
        Life(Some(watched))
    }

    /// The key was changed on this server.
    pub(super) fn look(&self, id: ApiKeyId) {
        let lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = lives.get(&id).and_then(Weak::upgrade) {
            watched.asked.notify_one();
        }
    }
}

/// Looks a key up until it is refused or has no stream any more.
async fn follow(store: Arc<dyn Store>, clock: Arc<dyn Clock>, id: ApiKeyId, watched: Weak<Watched>) {
    while let Some(life) = watched.upgrade() {
        let valid = match records::find::<ApiKey>(&*store, &id.to_string()).await {
            Ok(found) => found.is_some_and(|kept| kept.body.is_valid(clock.now())),
            // Without an answer it asks again later: a store that is away for a moment must not end all streams.
            Err(_) => true,
        };
        if !valid {
            life.over.send_replace(true);
            return;
        }
        let asked = life.asked.clone();
        // It exists only while streams hold it.
        drop(life);
        tokio::select! {
            () = asked.notified() => {}
            () = clock.until(clock.now().after(LOOK)) => {}
        }
    }
}
