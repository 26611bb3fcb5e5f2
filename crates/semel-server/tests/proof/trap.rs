//! Kills a server at the worst moment: when it has just answered, and before it can do anything else.

use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::Failed;
use tokio::sync::Notify;

use crate::site::Site;

/// Set for a server, it springs at the next answer of that server.
#[derive(Default)]
pub(crate) struct Trap {
    /// The server's number, from 1; 0 if it is not set.
    set: AtomicUsize,
    sprung: Notify,
}

impl Trap {
    /// Kills the server that has answered, if it is the one.
    pub(crate) fn spring(&self, site: &Site, server: usize) -> Result<(), Failed> {
        if self.set.compare_exchange(server + 1, 0, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Ok(());
        }
        let killed = site.servers[server].kill();
        self.sprung.notify_one();
        killed
    }

    pub(crate) fn set(&self, server: usize) {
        self.set.store(server + 1, Ordering::SeqCst);
    }

    /// Waits until it has sprung.
    pub(crate) async fn sprung(&self) {
        self.sprung.notified().await;
    }

    /// Takes it away, and tells whether it has sprung before; then the server is dead.
    pub(crate) async fn take(&self) -> bool {
        let has_sprung = self.set.swap(0, Ordering::SeqCst) == 0;
        if has_sprung {
            self.sprung().await;
        }
        has_sprung
    }
}
