//! Claims that are repeated because their answer was lost, and runs that are given to their owner again.
//!
//! Without this, a lost answer would cost the worker its lease: it would hold runs that it does not know of. The memory
//! is one entry per worker and kind of claim. A server that was restarted in between, or another server, has none: its
//! answer does not say `repeated`, and the worker joins anew.

use std::sync::{Arc, Mutex, PoisonError};

use semel::error::Result;
use semel::id::{NodeId, RunId, WorkspaceId};
use semel::rules::entry::Entry;
use semel::rules::key::CallId;
use semel::rules::run::Run;
use semel::store::{Claimed, Claims, Find, FindBy, Numbered};

use super::Workers;
use super::answer::Refusal;
use crate::app::App;
use crate::bounded::{BoundedCache, Most};
use crate::http::Problem;

/// Maximum number of remembered workers.
const MOST: usize = 10_000;
/// Maximum number of runs that are remembered for all of them: 16 MiB.
const MOST_RUNS: usize = 1_000_000;

/// The last claim of one worker. Its lock makes a repetition wait for the first call.
type LastClaim = Arc<tokio::sync::Mutex<Option<ClaimUnderId>>>;

/// A claim that was made under an id.
struct ClaimUnderId {
    id: CallId,
    /// The runs that it claimed.
    runs: Vec<RunId>,
}

/// The last claims of all workers.
pub(super) struct LastClaims(Mutex<BoundedCache<(ClaimKind, NodeId), WorkspaceId, LastClaim>>);

/// What is claimed. A worker claims both kinds at the same time, each under ids of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClaimKind {
    /// Runs of workflows, for drivers.
    Runs,
    /// Steps of queues, for their workers.
    Steps,
}

impl Default for LastClaims {
    fn default() -> Self {
        Self(Mutex::new(BoundedCache::new(Most { entries: MOST, weight: MOST_RUNS })))
    }
}

impl LastClaims {
    /// The last claim of a worker.
    fn of(&self, workspace: WorkspaceId, place: (ClaimKind, NodeId)) -> LastClaim {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = claims.touch(place, workspace, LastClaim::default).clone();
        claims.trim();
        last
    }

    /// Records how many runs the last claim of a worker has taken.
    fn weigh(&self, place: (ClaimKind, NodeId), runs: usize) {
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        claims.weigh(&place, runs);
        claims.trim();
    }
}

/// A claim that a worker may repeat.
pub(super) struct RepeatableClaim {
    /// Whether it claims runs or steps.
    pub(super) kind: ClaimKind,
    /// Workspace and node of the worker.
    pub(super) place: (WorkspaceId, NodeId),
    /// Id under which it is repeated.
    pub(super) id: CallId,
}

/// What a claim under an id gives its worker.
pub(super) enum OnceClaimed<T> {
    /// The claim was made by this call.
    Now(T),
    /// An earlier call under this id has claimed these runs.
    Before(Vec<RunId>),
}

/// Claims under an id. The repetition of the worker's last claim claims nothing, and names the runs of the first call.
pub(super) async fn once<T: Send + 'static>(
    workers: Arc<Workers>,
    RepeatableClaim { kind, place: (workspace, node), id }: RepeatableClaim,
    claim: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    runs: impl FnOnce(&T) -> Vec<RunId> + Send + 'static,
) -> Result<OnceClaimed<T>, Refusal> {
    let last = workers.last_claims.of(workspace, (kind, node));
    // In a task of its own: if the client disconnects, its repetition finds what was claimed.
    let done = tokio::spawn(async move {
        let mut last = last.lock().await;
        if let Some(claim) = last.as_ref().filter(|claim| claim.id == id) {
            return Ok(OnceClaimed::Before(claim.runs.clone()));
        }
        *last = None;
        let claimed = claim.await?;
        let runs = runs(&claimed);
        workers.last_claims.weigh((kind, node), runs.len());
        *last = Some(ClaimUnderId { id, runs });
        Ok(OnceClaimed::Now(claimed))
    });
    done.await.map_err(|_| Problem::unavailable("the server is stopping; try again"))?
}

/// What a claim gives its worker.
#[derive(Debug, Default)]
pub(super) struct HeldClaims {
    /// The runs with their ledgers and inboxes.
    pub(super) claims: Claims,
    /// Runs whose ledgers and inboxes were not read, because those of the others are large enough for one answer.
    pub(super) left_out: Vec<Run>,
    /// Whether an earlier call under the same id has claimed them.
    pub(super) repeated: bool,
}

/// Those of the runs that the node holds, as a claim would give them: ledgers and inboxes up to the run that exceeds `most`
/// bytes.
pub(super) async fn held(
    app: &App,
    (workspace, node): (WorkspaceId, NodeId),
    runs: &[RunId],
    most: usize,
) -> Result<HeldClaims> {
    let (mut held, mut bytes) = (HeldClaims::default(), 0);
    held.claims.now = app.clock.now();
    for run in runs {
        let found = app.store.find(Find { workspace, by: FindBy::Id(*run) }).await?;
        let Some((run, _)) = found.filter(|(run, _)| run.state.node == Some(node)) else { continue };
        if bytes >= most {
            held.left_out.push(run);
            continue;
        }
        let lines = app.store.ledger(workspace, run.id(), 1).await?;
        // Otherwise the run was taken or has ended meanwhile: it is no longer the node's.
        if lines.len() as u64 == run.state.version {
            let entries: Vec<_> = lines.into_iter().map(|Numbered { entry, .. }| entry).collect();
            let inbox = app.store.inbox(workspace, run.id(), 1).await?;
            bytes += entries.iter().map(Entry::weight).sum::<usize>();
            bytes += inbox.iter().map(|arrival| arrival.message.weight()).sum::<usize>();
            held.claims.runs.push(Claimed { run, entries: Some(entries), inbox });
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use semel::clock::{Clock as _, SystemClock};
    use semel::rules::claim::{Claim, Drives};
    use semel::rules::json::Payload;
    use semel::rules::path::Name;
    use semel::rules::start::Start;
    use semel::store::memory::MemoryStore;
    use semel::store::{Lease, LeaseAct};

    use super::*;

    #[tokio::test]
    async fn what_is_given_again_has_a_bound() {
        let clock = Arc::new(SystemClock::new());
        let app = App::open(Arc::new(MemoryStore::new(clock.clone())), clock.clone());
        let (workspace, node, name) = (WorkspaceId::DEFAULT, NodeId(clock.uuid()), Name::new("w").unwrap());
        app.store.lease(Lease { node, act: LeaseAct::Join(std::time::Duration::MAX) }).await.unwrap();
        let drives = Drives { workspace, workflow: name.clone(), workflow_version: Name::new("1").unwrap() };
        for _ in 0..3 {
            let run = RunId(clock.uuid());
            let start = Start::new(workspace, run, name.clone(), Payload::null(), None);
            app.store.start(start).await.unwrap();
        }
        let claims = app.store.claim(Claim::new(node, vec![drives], 10)).await.unwrap();
        let runs: Vec<_> = claims.runs.iter().map(|claimed| claimed.run.id()).collect();
        let given = async |most| held(&app, (workspace, node), &runs, most).await.unwrap();
        let all = given(usize::MAX).await;
        assert_eq!((all.claims.runs, all.left_out), (claims.runs.clone(), Vec::new()));
        let some = given(1).await;
        assert_eq!(some.claims.runs, claims.runs[..1]);
        assert_eq!(some.left_out.iter().map(Run::id).collect::<Vec<_>>(), runs[1..], "none is forgotten");
    }
}
