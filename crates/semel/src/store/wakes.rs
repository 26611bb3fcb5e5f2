//! Wake-ups: what has changed that somebody may be waiting for.
//!
//! They only save time. Nothing depends on them: whoever waits also looks by itself from time to time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::watch::{Watch, Watched};
use crate::id::{RunId, WorkspaceId};

/// So many may be on their way to a listener; one that has missed some looks at everything.
const ON_THEIR_WAY: usize = 4096;

/// Something that somebody may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// A run is due, or will be sooner than was known. It may be that of any workspace.
    Due,
    /// The same, of a run of this workspace.
    DueIn(WorkspaceId),
    /// A message has arrived in the inbox of a run.
    Arrived(RunId),
    /// An operator has written to a run: whoever drove it has lost it.
    Taken(RunId),
    /// A run has ended.
    Ended(RunId),
    /// The driver of a run has paused it: somebody has to look at it.
    Paused(RunId),
    /// A once has its result, or is free again.
    Settled,
    /// Anything may have happened: look at everything that you wait for.
    All,
}

/// The listeners of a store.
#[derive(Debug)]
pub(crate) struct Wakes {
    listeners: broadcast::Sender<Wake>,
    /// What happened in this process alone, for whoever tells the others.
    own: Option<broadcast::Sender<Wake>>,
    /// Those who wait for one run.
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

    /// Tells what happened in this process. Where nobody listens, nobody waits.
    pub(crate) fn tell(&self, wake: Wake) {
        self.watched.tell(wake);
        drop(self.listeners.send(wake));
        if let Some(own) = &self.own {
            drop(own.send(wake));
        }
    }

    /// Tells what happened in another process. It is nothing to be told to others.
    #[cfg(feature = "postgres")]
    pub(crate) fn pass_on(&self, wake: Wake) {
        self.watched.tell(wake);
        drop(self.listeners.send(wake));
    }

    /// A run has more entries. That is news for those alone who watch it: it happens too often to be told to everybody.
    pub(crate) fn moved(&self, run: RunId) {
        self.watched.moved(run);
    }

    pub(crate) fn watch(&self, run: RunId) -> Watch {
        Watched::watch(&self.watched, run)
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Wake> {
        self.listeners.subscribe()
    }

    /// What is told in this process; nothing if nobody asked for it.
    #[cfg(feature = "postgres")]
    pub(crate) fn own(&self) -> Option<broadcast::Receiver<Wake>> {
        self.own.as_ref().map(broadcast::Sender::subscribe)
    }
}
