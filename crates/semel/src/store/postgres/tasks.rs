//! Tasks in the background of a store: told to end when it is closed or dropped.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Tasks, and the word that ends them.
pub(super) struct Tasks {
    stopping: watch::Sender<bool>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self { stopping: watch::Sender::new(false), running: Mutex::default() }
    }

    /// Starts a task, which is given the sign to end.
    pub(super) fn spawn<F>(&self, task: impl FnOnce(Stop) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let running = tokio::spawn(task(Stop(self.stopping.subscribe())));
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(running);
    }

    /// Tells the tasks to end, and waits until they have.
    pub(super) async fn stop(&self) {
        self.stopping.send_replace(true);
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for task in running {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the store has failed");
            }
        }
    }
}

/// The sign to end.
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Is over when the tasks are stopped or dropped.
    pub(super) async fn asked(&mut self) {
        // An error means that the sender is gone.
        drop(self.0.wait_for(|stop| *stop).await);
    }
}
