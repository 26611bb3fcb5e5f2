//! What was found to be wrong: printed as it is found, and kept for the report.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

/// What sort of promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Something that was answered for, or must have happened, is not there.
    Lost,
    /// Something took place more than once.
    Doubled,
    /// Something does not end.
    Stuck,
    /// Anything else: an answer that does not agree with the end, an order, a time.
    Wrong,
}

/// One broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) sort: Sort,
    /// The run, or the key if its run is unknown.
    pub(crate) run: String,
    /// The path or token, if it is about one.
    pub(crate) at: String,
    /// What was expected, and what is there.
    pub(crate) said: String,
}

/// All that was found.
#[derive(Default)]
pub(crate) struct Findings {
    all: Mutex<Vec<Finding>>,
    more: Notify,
}

impl Findings {
    fn lock(&self) -> MutexGuard<'_, Vec<Finding>> {
        self.all.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn add(&self, sort: Sort, run: &str, at: &str, said: impl Into<String>) {
        let finding = Finding { sort, run: run.to_owned(), at: at.to_owned(), said: said.into() };
        eprintln!("{:?}: run {} at {:?}: {}", finding.sort, finding.run, finding.at, finding.said);
        self.lock().push(finding);
        self.more.notify_one();
    }

    pub(crate) fn count(&self, sort: Sort) -> usize {
        self.lock().iter().filter(|finding| finding.sort == sort).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The first of some sorts.
    #[cfg(feature = "sabotage")]
    pub(crate) fn any(&self, sorts: &[Sort]) -> Option<Finding> {
        self.lock().iter().find(|finding| sorts.contains(&finding.sort)).cloned()
    }

    /// Waits for the first of some sorts.
    #[cfg(feature = "sabotage")]
    pub(crate) async fn first(&self, sorts: &[Sort]) -> Finding {
        loop {
            if let Some(first) = self.any(sorts) {
                return first;
            }
            self.more.notified().await;
        }
    }
}
