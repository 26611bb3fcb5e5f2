//! Wake-ups: what has changed that somebody may be waiting for.
//!
//! They only save time. Nothing depends on them: whoever waits also looks by itself from time to time.

use tokio::sync::broadcast;

use crate::id::RunId;

/// So many may be on their way to a listener; one that has missed some looks at everything.
const ON_THEIR_WAY: usize = 4096;

/// Something that somebody may be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// A run is due, or will be sooner than was known.
    Due,
    /// A message has arrived in the inbox of a run.
    Arrived(RunId),
    /// An operator has written to a run: whoever drove it has lost it.
    Taken(RunId),
    /// A run has ended.
    Ended(RunId),
    /// A once has its result, or is free again.
    Settled,
}

/// The listeners of a store.
#[derive(Debug)]
pub(crate) struct Wakes(broadcast::Sender<Wake>);

impl Default for Wakes {
    fn default() -> Self {
        Self(broadcast::Sender::new(ON_THEIR_WAY))
    }
}

impl Wakes {
    pub(crate) fn tell(&self, wake: Wake) {
        // Nobody listens: then nobody waits.
        drop(self.0.send(wake));
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Wake> {
        self.0.subscribe()
    }
}
