//! Wake-ups: hints to listeners that something has changed.
//!
//! They only save time. Nothing depends on them, because every listener also looks at the store from time to time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::watch::{Watch, Watched};
use crate::id::{RunId, WorkspaceId};

/// Maximum number of wake-ups that a listener has not read yet. A listener that has missed some looks at everything.
const ON_THEIR_WAY: usize = 4096;

/// A change that a listener may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WakeUp))]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// A run is due, or will be sooner than was known. It may be that of any workspace.
    Due,
    /// The same, of a run of this workspace.
    DueIn(WorkspaceId),
    /// A message has arrived in the inbox of a run.
    Arrived(RunId),
    /// An operator has written to a run. Its driver, if it had one, has lost it.
    Taken(RunId),
    /// A run has ended, with whatever status.
    Ended(RunId),
    /// The driver of a run has paused it. An operator has to look at it.
    Paused(RunId),
    /// A `run_once` value is there, or may be claimed again.
    Settled,
    /// Wake-ups may have been lost: the listener has to look at everything that it waits for.
    All,
}

/// The listeners of a store.
#[derive(Debug)]
pub(crate) struct Wakes {
    listeners: broadcast::Sender<Wake>,
    /// Changes that this process has made, for the task that tells other processes. None if there are no others.
    own: Option<broadcast::Sender<Wake>>,
    /// Listeners that watch one run.
    watched: Arc<Watched>,
}

impl Default for Wakes {
    fn default() -> Self {
        Self { listeners: broadcast::Sender::new(ON_THEIR_WAY), own: None, watched: Arc::default() }
    }
}

impl Wakes {
    /// The listeners of a store that other processes use too.
    #[cfg(feature = "postgres")]
    pub(crate) fn among_others() -> Self {
        Self { own: Some(broadcast::Sender::new(ON_THEIR_WAY)), ..Self::default() }
    }

    /// Tells listeners, here and in other processes, of a change that this process has made.
    pub(crate) fn tell(&self, wake: Wake) {
        self.watched.tell(wake);
        drop(self.listeners.send(wake));
        if let Some(own) = &self.own {
            drop(own.send(wake));
        }
    }

    /// Tells listeners of this process of a change that another process has made.
    #[cfg(feature = "postgres")]
    pub(crate) fn pass_on(&self, wake: Wake) {
        self.watched.tell(wake);
        drop(self.listeners.send(wake));
    }

    /// Tells listeners that watch a run of new entries. It happens too often to tell all listeners.
    pub(crate) fn moved(&self, run: RunId) {
        self.watched.moved(run);
    }

    pub(crate) fn watch(&self, run: RunId) -> Watch {
        Watched::watch(&self.watched, run)
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Wake> {
        self.listeners.subscribe()
    }

    /// Changes that this process makes from now on. None if the store has no other processes.
    #[cfg(feature = "postgres")]
    pub(crate) fn own(&self) -> Option<broadcast::Receiver<Wake>> {
        self.own.as_ref().map(broadcast::Sender::subscribe)
    }
}
