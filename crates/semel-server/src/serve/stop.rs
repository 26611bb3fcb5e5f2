//! The order to stop, and the signals that give it.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::Error;

/// The order to stop. Long polls and streams of events also wait for it, and answer early.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Orders the server to stop; repeating it does nothing.
    pub fn order(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has been given.
    pub fn is_ordered(&self) -> bool {
        *self.0.borrow()
    }

    /// Is over when it has been given.
    pub async fn ordered(&self) {
        let mut orders = self.0.subscribe();
        // It ends only when the sender is gone, and the sender is here.
        drop(orders.wait_for(|ordered| *ordered).await);
    }
}

/// SIGTERM and SIGINT stop in good order. The second of them ends the process at once.
pub fn on_signals(stop: Stop) -> Result<(), Error> {
    let listen = |kind| signal(kind).map_err(|error| Error::Logs(error.into()));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        tracing::info!("stopping: waiting for what has begun; another signal ends the process at once");
        stop.order();
        next().await;
        tracing::warn!("stopped at once by a second signal");
        std::process::exit(130);
    });
    Ok(())
}
