//! Kills a server at the worst moment: when it has just answered, and before it can do anything else.

use std::sync::atomic::{AtomicUsize, Ordering};

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
    pub(crate) fn spring(&self, site: &Site, server: usize) {
        if self.set.compare_exchange(server + 1, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            // If it cannot be killed the nemesis finds it alive, and says so.
            drop(site.servers[server].kill());
            self.sprung.notify_one();
        }
    }

    pub(crate) fn set(&self, server: usize) {
        self.set.store(server + 1, Ordering::SeqCst);
    }

    /// Waits until it has sprung.
    pub(crate) async fn sprung(&self) {
        self.sprung.notified().await;
    }

    /// Takes it away; false if it has sprung before.
    pub(crate) fn take(&self) -> bool {
        self.set.swap(0, Ordering::SeqCst) != 0
    }
}
