//! How many open runs a workspace may have: one tenant must not fill the store.
//!
//! The store counts them, to the bound and no further, and what a count leaves is given away without another one for a few
//! seconds. Starts at other servers, of workers, and children of runs are not refused here, but seen with the next count, so the bound may be exceeded a
//! little. A start that repeats one is never refused: it makes no new run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use semel::clock::Time;
use semel::id::WorkspaceId;
use semel::rules::key::Scope;
use semel::rules::start::Start;
use semel::store::{Find, FindBy, Store};

use crate::http::Problem;

/// Milliseconds for which a count is believed, while it is below the limit.
const BELIEVED_MS: i64 = 5_000;
/// A workspace is not counted more often than this.
const APART_MS: i64 = 1_000;
/// Most workspaces whose counts are remembered.
const MOST: usize = 10_000;

/// The bound on open runs of each workspace.
#[derive(Debug, Default)]
pub(crate) struct OpenRunsBound {
    /// None if there is no bound.
    max: Option<u64>,
    counted: Mutex<HashMap<WorkspaceId, Room>>,
}

/// What a count has left.
#[derive(Clone, Copy, Debug)]
struct Room {
    left: u64,
    at: Time,
}

/// What is known of a workspace without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    HasRoom,
    IsFull,
    Nothing,
}

impl Room {
    /// Takes one place, if that is known to be possible.
    fn take(&mut self, now: Time) -> Known {
        let age = now.0.saturating_sub(self.at.0);
        if self.left > 0 && age < BELIEVED_MS {
            self.left -= 1;
            return Known::HasRoom;
        }
        if age < APART_MS { Known::IsFull } else { Known::Nothing }
    }
}

impl OpenRunsBound {
    /// So many; 0 is no bound.
    pub(super) fn new(max: u32) -> Self {
        Self { max: (max > 0).then_some(max.into()), ..Self::default() }
    }

    /// Lets a start pass, or refuses it.
    pub(crate) async fn admit(&self, store: &dyn Store, now: Time, start: &Start) -> Result<(), Problem> {
        let Some(max) = self.max else { return Ok(()) };
        if self.has_room(store, now, start.workspace, max).await? || repeats(store, start).await? {
            return Ok(());
        }
        Err(Problem::rate_limited(format!(
            "this workspace has {max} open runs, as many as `limits.max-open-runs` allows; start again when some have \
             ended, or cancel what is not needed"
        )))
    }

    async fn has_room(
        &self,
        store: &dyn Store,
        now: Time,
        workspace: WorkspaceId,
        max: u64,
    ) -> Result<bool, Problem> {
        match self.take(workspace, now) {
            Known::HasRoom => return Ok(true),
            Known::IsFull => return Ok(false),
            Known::Nothing => {}
        }
        let open = store.open_runs(workspace, max).await?;
        let mut room = Room { left: max.saturating_sub(open), at: now };
        let taken = room.take(now) == Known::HasRoom;
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MOST {
            counted.retain(|_, room| now.0.saturating_sub(room.at.0) < BELIEVED_MS);
        }
        counted.insert(workspace, room);
        Ok(taken)
    }

    fn take(&self, workspace: WorkspaceId, now: Time) -> Known {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.get_mut(&workspace).map_or(Known::Nothing, |room| room.take(now))
    }
}

/// Whether the key of a start belongs to a run that exists.
async fn repeats(store: &dyn Store, start: &Start) -> Result<bool, Problem> {
    let scope = Scope::of(start.scope, &start.workflow, &start.workflow_version);
    let find = Find { workspace: start.workspace, by: FindBy::Key(scope, start.key.clone()) };
    Ok(store.find(find).await?.is_some())
}

#[cfg(test)]
mod tests {
    use super::Known::{HasRoom, IsFull, Nothing};
    use super::*;

    #[test]
    fn a_count_is_given_away_and_not_repeated_at_once() {
        let mut room = Room { left: 2, at: Time(0) };
        let taken = [0, 100, 200, 999, 1_000].map(|now| room.take(Time(now)));
        assert_eq!(taken, [HasRoom, HasRoom, IsFull, IsFull, Nothing]);
    }

    #[test]
    fn an_old_count_is_not_believed() {
        let mut room = Room { left: 100, at: Time(0) };
        assert_eq!(room.take(Time(BELIEVED_MS - 1)), HasRoom);
        assert_eq!(room.take(Time(BELIEVED_MS)), Nothing);
    }
}
