//! Bounds on children of runs: how deep they are, and how many a workspace may have open. Commits of remote workers
//! and the `child` of definitions ask here before a child is started.

use std::fmt;
use std::sync::Arc;

use semel::clock::Clock;
use semel::error::{Error, Result};
use semel::id::{RunId, WorkspaceId};
use semel::store::{Find, FindBy, Store};

use super::Bounds;

/// Maximum depth of children. It stops a run that starts itself as its child.
const MOST_GENERATIONS: usize = 64;

/// The bounds on children, shared by the routes of workers and the engine of the server.
pub struct ChildBounds {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    bounds: Arc<Bounds>,
}

impl fmt::Debug for ChildBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildBounds").field(&self.bounds).finish()
    }
}

/// A run that starts children.
#[derive(Clone, Copy, Debug)]
pub struct StartsChildren {
    /// Workspace of the run.
    pub workspace: WorkspaceId,
    /// The run that starts them.
    pub run: RunId,
    /// The run that has started it as its child; none if it is no child.
    pub parent: Option<RunId>,
    /// Number of children that it starts now.
    pub children: u64,
}

impl ChildBounds {
    /// The bounds for runs of this store.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, bounds: Arc<Bounds>) -> Self {
        Self { store, clock, bounds }
    }

    /// Lets a run start children. The error is `Validation` if the run is too deep for that, and `Unavailable` if the
    /// workspace has too many open runs at the moment.
    pub async fn admit(&self, starts: StartsChildren) -> Result<()> {
        let StartsChildren { workspace, run, mut parent, children } = starts;
        for _ in 1..MOST_GENERATIONS {
            let Some(id) = parent else { break };
            let found = self.store.find(Find { workspace, by: FindBy::Id(id) }).await?;
            parent = found.and_then(|(run, _)| run.new.parent);
        }
        if parent.is_some() {
            return Err(Error::Validation(format!(
                "{run} is the child of a child, {MOST_GENERATIONS} times over: it may start no children; does a workflow \
                 start itself?"
            )));
        }
        let open_runs = &self.bounds.open_runs;
        Ok(open_runs.admit_children(&*self.store, self.clock.now(), workspace, children).await?)
    }
}
