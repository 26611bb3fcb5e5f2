//! Watching one run: a listener that waits for its next entry is told of it, and of no other run.
//!
//! As with [wakes](super::Wake), nothing depends on it. Entries that another process writes are told only if they end
//! the run or take it from its driver; so a watcher also looks at the store from time to time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::wakes::Wake;
use crate::id::RunId;

/// An eye on one run, from the moment it was made.
#[derive(Debug)]
pub struct Watch(Option<Eye>);

#[derive(Debug)]
struct Eye {
    run: RunId,
    /// Taken only when dropped.
    told: Option<watch::Receiver<()>>,
    watched: Arc<Watched>,
}

impl Watch {
    /// Of a store that tells nothing.
    pub fn blind() -> Self {
        Self(None)
    }

    /// Is over when the run has changed since the last time this was, or since the watch began.
    pub async fn changed(&mut self) {
        if let Some(told) = self.0.as_mut().and_then(|eye| eye.told.as_mut())
            && told.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Drop for Eye {
    fn drop(&mut self) {
        self.told = None;
        self.watched.forget(self.run);
    }
}

/// Runs that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// How many: a commit looks no further if there are none.
    count: AtomicUsize,
    runs: Mutex<HashMap<RunId, watch::Sender<()>>>,
}

impl Watched {
    pub(super) fn watch(this: &Arc<Self>, run: RunId) -> Watch {
        let mut runs = this.runs();
        let told = runs.entry(run).or_insert_with(|| watch::Sender::new(())).subscribe();
        this.count.store(runs.len(), Ordering::SeqCst);
        drop(runs);
        Watch(Some(Eye { run, told: Some(told), watched: this.clone() }))
    }

    /// A run has more entries.
    pub(super) fn moved(&self, run: RunId) {
        if self.count.load(Ordering::SeqCst) > 0
            && let Some(watchers) = self.runs().get(&run)
        {
            watchers.send_replace(());
        }
    }

    /// The part of all wake-ups that is about entries.
    pub(super) fn tell(&self, wake: Wake) {
        match wake {
            Wake::Taken(run) | Wake::Ended(run) | Wake::Paused(run) => self.moved(run),
            Wake::All if self.count.load(Ordering::SeqCst) > 0 => {
                self.runs().values().for_each(|watchers| watchers.send_replace(()));
            }
            Wake::All | Wake::Due | Wake::DueIn(_) | Wake::Arrived(_) | Wake::Settled => {}
        }
    }

    fn forget(&self, run: RunId) {
        let mut runs = self.runs();
        if runs.get(&run).is_some_and(|watchers| watchers.receiver_count() == 0) {
            runs.remove(&run);
        }
        self.count.store(runs.len(), Ordering::SeqCst);
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, watch::Sender<()>>> {
        self.runs.lock().expect("nothing panics while it holds this")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_run_is_watched_as_long_as_there_is_a_listener() {
        let (watched, run) = (Arc::new(Watched::default()), RunId(Uuid::from_u128(1)));
        let first = Watched::watch(&watched, run);
        let second = Watched::watch(&watched, run);
        drop(first);
        assert_eq!(watched.count.load(Ordering::SeqCst), 1);
        drop(second);
        assert_eq!(watched.count.load(Ordering::SeqCst), 0);
    }
}
