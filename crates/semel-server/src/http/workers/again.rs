//! Claims that are repeated because their answer was lost, and runs that are given to their owner again.
//!
//! Without this, a lost answer would cost the worker its lease: it would hold runs that it does not know of. The memory
//! is one entry per worker. A server that was restarted in between has none; the worker then joins anew.

use std::sync::{Arc, Mutex, PoisonError};

use semel::error::Result;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::key::CallId;
use semel::store::{Claimed, Claims, Find, FindBy, Numbered};

use crate::app::App;
use crate::bounded::{BoundedCache, Most};

/// Maximum number of remembered workers.
const MOST: usize = 10_000;

/// The last claim of one worker. Its lock makes a repetition wait for the first call.
pub(super) type LastClaim = Arc<tokio::sync::Mutex<Option<ClaimUnderId>>>;

/// A claim that was made under an id.
pub(super) struct ClaimUnderId {
    pub(super) id: CallId,
    /// The claimed runs.
    pub(super) runs: Vec<RunId>,
}

/// The last claims of all workers.
pub(super) struct LastClaims(Mutex<BoundedCache<NodeId, WorkspaceId, LastClaim>>);

impl Default for LastClaims {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: MOST, weight: 0 })))
    }
}

impl LastClaims {
    /// The last claim of a worker.
    pub(super) fn of(&self, workspace: WorkspaceId, node: NodeId) -> LastClaim {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = claims.touch(node, workspace, LastClaim::default).clone();
        claims.trim();
        last
    }
}

/// Those of the runs that the node holds, as a claim would give them.
pub(super) async fn held(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    runs: &[RunId],
) -> Result<Claims> {
    let mut claims = Claims { now: app.clock.now(), ..Claims::default() };
    for run in runs {
        let found = app.store.find(Find { workspace, by: FindBy::Id(*run) }).await?;
        let Some((run, _)) = found.filter(|(run, _)| run.state.node == Some(node)) else { continue };
        let lines = app.store.ledger(workspace, run.id(), 1).await?;
        // Otherwise the run was taken or has ended meanwhile: it is no longer the node's.
        if lines.len() as u64 == run.state.version {
            let entries = lines.into_iter().map(|Numbered { entry, .. }| entry).collect();
            let inbox = app.store.inbox(workspace, run.id(), 1).await?;
            claims.runs.push(Claimed { run, entries: Some(entries), inbox });
        }
    }
    Ok(claims)
}
