//! The state of one try's transaction, shared by the body, which may commit, and the step, which has to know.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::fail::Fail;
use crate::rules::json::Payload;

/// Where a try's transaction stands.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// The transaction may still commit.
    #[default]
    Open,
    /// It is about to commit: if it is interrupted now, its outcome is unknown.
    Committing,
    /// It has committed this outcome.
    Committed(Payload),
    /// It was refused, or its answer is lost: the table knows more.
    Lost(Fail),
    /// The try is over; it may not commit any more.
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Gate {
    stage: Mutex<Stage>,
    lost: Notify,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to commit; false if the try is over. A transaction that outlives its try (in a task of its own, say) would
    /// otherwise commit when the step has failed already.
    pub(super) fn enter(&self) -> bool {
        let mut stage = self.lock();
        let open = matches!(*stage, Stage::Open);
        if open {
            *stage = Stage::Committing;
        }
        open
    }

    /// The transaction has certainly not committed.
    pub(super) fn reopen(&self) {
        *self.lock() = Stage::Open;
    }

    pub(super) fn committed(&self, outcome: Payload) {
        *self.lock() = Stage::Committed(outcome);
    }

    /// Ends the body here, and wakes the task that waits for it.
    pub(super) async fn lose<T>(&self, why: Fail) -> T {
        *self.lock() = Stage::Lost(why);
        self.lost.notify_one();
        std::future::pending().await
    }

    /// Completes when the table has to be asked.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Ends the try, and gives its outcome.
    pub(super) fn close(&self) -> Stage {
        std::mem::replace(&mut self.lock(), Stage::Closed)
    }
}
