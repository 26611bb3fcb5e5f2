//! How many open runs a workspace may have: one tenant must not fill the store.
//!
//! The store counts them, to the bound and no further. A count is believed for a few seconds, in which the runs that are
//! started here are added to it. Starts at other servers are seen with the next count, so the bound may be exceeded a
//! little. A start that makes no new run is never refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use semel::clock::Time;
use semel::error::Error;
use semel::id::WorkspaceId;
use semel::remote::wire::LimitReached;
use semel::rules::key::{Fingerprint, Scope};
use semel::rules::start::{Decision, Start, decide};
use semel::store::{Find, FindBy, Store};

use crate::http::Problem;

/// Time for which a count is believed, in milliseconds, while there is room left.
const BELIEVED_MS: i64 = 5_000;
/// Minimum time between two counts of a workspace, in milliseconds.
const APART_MS: i64 = 1_000;
/// Maximum number of workspaces whose counts are remembered.
const MOST: usize = 10_000;
/// Children are accepted up to this multiple of the bound: a run that has been started can go on although no further
/// run may be started.
const FOR_CHILDREN: u64 = 2;

/// The bound on open runs of each workspace.
#[derive(Debug, Default)]
pub(crate) struct OpenRunsBound {
    /// None if there is no bound.
    max: Option<u64>,
    counted: Mutex<HashMap<WorkspaceId, CountSlot>>,
}

/// Count of one workspace. Its lock makes concurrent starts wait for one count.
type CountSlot = Arc<tokio::sync::Mutex<Count>>;

/// Open runs of a workspace: the last count, and what was started here since.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    open: u64,
    /// Time of the count; none before the first one.
    at: Option<Time>,
}

/// What is known of a workspace without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    HasRoom,
    IsFull,
    Nothing,
}

/// Why a run may not be started now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAdmitted {
    /// The workspace has as many open runs as it may have.
    #[error(
        "this workspace has {0} open runs, as many as `limits.max-open-runs` allows; start again when some have ended, or \
         cancel what is not needed"
    )]
    Full(u64),
    /// The workspace has twice as many open runs as allowed, so that children have to wait too.
    #[error(
        "this workspace has {0} open runs, twice as many as `limits.max-open-runs` allows, so children have to wait until \
         some have ended; cancel what is not needed"
    )]
    FullForChildren(u64),
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] Error),
}

impl From<NotAdmitted> for Problem {
    fn from(refused: NotAdmitted) -> Self {
        match refused {
            NotAdmitted::Store(error) => error.into(),
            full => Self::rate_limited(full.to_string()),
        }
    }
}

impl From<NotAdmitted> for Error {
    fn from(refused: NotAdmitted) -> Self {
        match refused {
            NotAdmitted::Store(error) => error,
            // The caller may try again, as after any error of a store that is busy.
            full => Self::Unavailable(Box::new(LimitReached(full.to_string()))),
        }
    }
}

impl Count {
    /// Takes places, if that is known to be possible. The last ones to take some may exceed the bound.
    fn take(&mut self, places: u64, most: u64, now: Time) -> Known {
        let Some(at) = self.at else { return Known::Nothing };
        let age = now.0.saturating_sub(at.0);
        if self.open < most && age < BELIEVED_MS {
            self.open += places;
            return Known::HasRoom;
        }
        if self.open >= most && age < APART_MS { Known::IsFull } else { Known::Nothing }
    }
}

impl OpenRunsBound {
    /// A bound of `max` open runs; 0 is no bound.
    pub(super) fn new(max: u32) -> Self {
        Self { max: (max > 0).then_some(max.into()), ..Self::default() }
    }

    /// Lets a start pass, or refuses it.
    pub(crate) async fn admit(&self, store: &dyn Store, now: Time, start: &Start) -> Result<(), NotAdmitted> {
        let Some(max) = self.max else { return Ok(()) };
        if self.takes(store, now, start.workspace, (1, max)).await?
            || !opens_another(store, now, start).await?
        {
            return Ok(());
        }
        Err(NotAdmitted::Full(max))
    }

    /// Lets a run start children, or refuses them.
    pub(crate) async fn admit_children(
        &self,
        store: &dyn Store,
        now: Time,
        workspace: WorkspaceId,
        children: u64,
    ) -> Result<(), NotAdmitted> {
        let Some(max) = self.max.map(|max| max * FOR_CHILDREN) else { return Ok(()) };
        match self.takes(store, now, workspace, (children, max)).await? {
            true => Ok(()),
            false => Err(NotAdmitted::FullForChildren(max)),
        }
    }

    /// Takes places in a workspace; false if there is no room.
    async fn takes(
        &self,
        store: &dyn Store,
        now: Time,
        workspace: WorkspaceId,
        (places, most): (u64, u64),
    ) -> Result<bool, Error> {
        let slot = self.slot(workspace);
        let mut count = slot.lock().await;
        match count.take(places, most, now) {
            Known::HasRoom => return Ok(true),
            Known::IsFull => return Ok(false),
            Known::Nothing => {}
        }
        let open = store.open_runs(workspace, most).await?;
        *count = Count { open, at: Some(now) };
        Ok(count.take(places, most, now) == Known::HasRoom)
    }

    fn slot(&self, workspace: WorkspaceId) -> CountSlot {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MOST && !counted.contains_key(&workspace) {
            // Those that are in use stay.
            counted.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        counted.entry(workspace).or_default().clone()
    }
}

/// Whether a start adds to the open runs: it makes one, or restarts one that has ended.
async fn opens_another(store: &dyn Store, now: Time, start: &Start) -> Result<bool, Error> {
    let workspace = start.workspace;
    let scope = Scope::of(start.scope, &start.workflow, &start.workflow_version);
    let found = store.find(Find { workspace, by: FindBy::Key(scope, start.key.clone()) }).await?;
    let holder = found.map(|(run, _)| run);
    let fingerprint = Fingerprint::of_start(&start.workflow, &start.input, &start.excluded)?;
    let opens = match decide(start, fingerprint, holder.as_ref(), now) {
        Decision::Create | Decision::Restart => true,
        Decision::Replace => holder.is_none_or(|holder| holder.status().is_terminal()),
        Decision::Attach(_) | Decision::Reject | Decision::Refuse => false,
    };
    if !opens {
        return Ok(false);
    }
    // A payload for a run that is there is delivered to it, and none is made.
    let Some(handover) = &start.deliver else { return Ok(true) };
    let owner = store.find(Find { workspace, by: FindBy::Token(handover.token.clone()) }).await?;
    Ok(owner.is_none())
}

#[cfg(test)]
mod tests {
    use super::Known::{HasRoom, IsFull, Nothing};
    use super::*;

    #[test]
    fn a_count_is_used_up_and_not_repeated_at_once() {
        let mut count = Count { open: 1, at: Some(Time(0)) };
        let taken = [0, 100, 200, 999, 1_000].map(|now| count.take(1, 3, Time(now)));
        assert_eq!(taken, [HasRoom, HasRoom, IsFull, IsFull, Nothing]);
    }

    #[test]
    fn an_old_count_is_not_believed() {
        let mut count = Count { open: 0, at: Some(Time(0)) };
        assert_eq!(count.take(1, 100, Time(BELIEVED_MS - 1)), HasRoom);
        assert_eq!(count.take(1, 100, Time(BELIEVED_MS)), Nothing);
        assert_eq!(Count::default().take(1, 100, Time(0)), Nothing);
    }

    #[test]
    fn the_last_to_take_places_may_exceed_the_bound() {
        let mut count = Count { open: 1, at: Some(Time(0)) };
        assert_eq!([10, 1].map(|places| count.take(places, 2, Time(0))), [HasRoom, IsFull]);
    }
}
