//! Turns: when something becomes due, one listening worker is told first. If it takes the run, no other has asked for
//! nothing; if there is more, the next one's turn has come by then.

use std::sync::Arc;

/// A turn: the listener that holds it is told first.
pub(super) type Turn = tokio::sync::Mutex<()>;

#[derive(Default)]
pub(super) struct Turns {
    /// Among listeners of the wakes.
    pub(super) listeners: Arc<Turn>,
}
