//! Whose a run is, of runs that were asked about lately. What is told to workers names runs, and a worker hears of those
//! of its own workspace only.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use semel::id::{RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::store::{Find, FindBy};

use crate::app::App;

/// So many runs are remembered at least, and at most twice as many.
const MANY: usize = 100_000;

/// Runs and their workspaces: those learned lately, and those before them.
#[derive(Default)]
pub(super) struct Known(Mutex<[HashMap<RunId, WorkspaceId>; 2]>);

impl Known {
    /// A run is this workspace's.
    pub(super) fn learn(&self, run: RunId, workspace: WorkspaceId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known[0].insert(run, workspace);
        if known[0].len() > MANY {
            known[1] = std::mem::take(&mut known[0]);
        }
    }

    /// Children that a commit has started.
    pub(super) fn learn_children(&self, settled: &[Entry], workspace: WorkspaceId) {
        for entry in settled {
            if let Entry::ChildStarted { run, .. } = entry {
                self.learn(*run, workspace);
            }
        }
    }

    /// Whether a run is this workspace's. Asks the store about one that was not heard of.
    pub(super) async fn is_of(&self, app: &App, run: RunId, workspace: WorkspaceId) -> bool {
        let known = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().find_map(|runs| runs.get(&run).copied())
        };
        if let Some(owner) = known {
            return owner == workspace;
        }
        // A wake only saves time: where the store does not answer, none is told.
        let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await;
        let found = matches!(found, Ok(Some(_)));
        if found {
            self.learn(run, workspace);
        }
        found
    }
}
