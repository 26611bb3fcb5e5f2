//! Cache of recently used runs and their workspaces. Wakes name runs, and a worker receives only those of its own
//! workspace.

use std::sync::{Mutex, PoisonError};

use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::store::{Find, FindBy};

use crate::app::App;
use crate::bounded::{BoundedCache, Most};

/// Maximum number of cached runs.
const MOST: usize = 200_000;

/// Recently used runs and their workspaces.
pub(in crate::http) struct KnownRuns(Mutex<BoundedCache<RunId, WorkspaceId, WorkspaceId>>);

impl Default for KnownRuns {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: MOST, weight: 0 })))
    }
}

impl KnownRuns {
    /// Records that a run belongs to this workspace.
    pub(super) fn learn(&self, run: RunId, workspace: WorkspaceId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.touch(run, workspace, || workspace);
        known.trim();
    }

    /// Records the children that a commit has started.
    pub(super) fn learn_children(&self, settled: &[Entry], workspace: WorkspaceId) {
        for entry in settled {
            if let Entry::ChildStarted { run, .. } = entry {
                self.learn(*run, workspace);
            }
        }
    }

    /// Whether a run belongs to this workspace. Asks the store if the run is not cached.
    pub(in crate::http) async fn is_of(&self, app: &App, run: RunId, workspace: WorkspaceId) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied();
        if let Some(owner) = known {
            return owner == workspace;
        }
        // A wake only saves time: if the store does not answer, none is sent.
        let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await;
        let found = matches!(found, Ok(Some(_)));
        if found {
            self.learn(run, workspace);
        }
        found
    }
}
