//! How many open runs a workspace may have: one tenant must not fill the store.
//!
//! The store counts them, to the bound and no further. A count is believed for a few seconds, in which the runs that are
//! opened here are added to it. Runs that other servers open are seen with the next count, so the bound may be exceeded a
//! little. A call that opens no run is never refused, and takes no room from others.

mod count;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use semel::clock::Time;
use semel::error::Error;
use semel::id::WorkspaceId;
use semel::remote::wire::LimitReached;
use semel::rules::control::{Control, ControlAction, Controlled};
use semel::rules::key::{Fingerprint, Scope};
use semel::rules::start::{Decision, Start, StartVerdict, decide};
use semel::store::{Find, FindBy, Started, Store};

use self::count::{CountSlot, HeldRoom, Wish};
use crate::http::Problem;

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
    counted: Mutex<HashMap<WorkspaceId, Arc<CountSlot>>>,
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

impl OpenRunsBound {
    /// A bound of `max` open runs; 0 is no bound.
    pub(super) fn new(max: u32) -> Self {
        Self { max: (max > 0).then_some(max.into()), ..Self::default() }
    }

    /// Starts a run, or refuses a start that would open one too many.
    pub(crate) async fn start(
        &self,
        store: &dyn Store,
        now: Time,
        start: Start,
    ) -> Result<Started, NotAdmitted> {
        let room = self.admit(store, now, start.workspace, opens_another(store, now, &start)).await?;
        let started = store.start(start).await;
        settle(room, &started, |started| started.created() || started.verdict == StartVerdict::Restarted);
        Ok(started?)
    }

    /// Controls a run, or refuses a fork or a restart that would open one too many.
    pub(crate) async fn control(
        &self,
        store: &dyn Store,
        now: Time,
        control: Control,
    ) -> Result<Controlled, NotAdmitted> {
        let room = match control.action {
            ControlAction::Fork(_) | ControlAction::Restart(_) => {
                self.admit(store, now, control.workspace, opens_again(store, &control)).await?
            }
            _ => None,
        };
        let controlled = store.control(control).await;
        settle(room, &controlled, |controlled| controlled.changed);
        Ok(controlled?)
    }

    /// Room for one run, or none if no room is needed. The store is only asked whether the call `opens` a run if there is
    /// no room: most workspaces have some.
    async fn admit(
        &self,
        store: &dyn Store,
        now: Time,
        workspace: WorkspaceId,
        opens: impl Future<Output = Result<bool, Error>>,
    ) -> Result<Option<HeldRoom>, NotAdmitted> {
        let Some(max) = self.max else { return Ok(None) };
        let room = self.take(store, now, workspace, (1, max)).await?;
        if room.is_none() && opens.await? {
            return Err(NotAdmitted::Full(max));
        }
        Ok(room)
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
        // The commit that starts them comes later, so they count from now on.
        match self.take(store, now, workspace, (children, max)).await? {
            Some(_) => Ok(()),
            None => Err(NotAdmitted::FullForChildren(max)),
        }
    }

    /// Room for `runs` in a workspace that may have `most`.
    async fn take(
        &self,
        store: &dyn Store,
        now: Time,
        workspace: WorkspaceId,
        (runs, most): (u64, u64),
    ) -> Result<Option<HeldRoom>, Error> {
        // Both bounds are asked of one count.
        let cap = self.max.map_or(most, |max| max * FOR_CHILDREN);
        self.slot(workspace).take(store, now, Wish { workspace, runs, most, cap }).await
    }

    fn slot(&self, workspace: WorkspaceId) -> Arc<CountSlot> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= MOST && !counted.contains_key(&workspace) {
            // Those that are in use stay.
            counted.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        counted.entry(workspace).or_default().clone()
    }
}

/// Gives room back that a call has not used. After an error whose outcome is not known, the room counts as used.
fn settle<T>(room: Option<HeldRoom>, answer: &Result<T, Error>, has_opened: impl FnOnce(&T) -> bool) {
    let is_used = match answer {
        Ok(answer) => has_opened(answer),
        Err(error) => matches!(error, Error::Unknown(_)),
    };
    if let Some(room) = room.filter(|_| !is_used) {
        room.give_back();
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

/// Whether a control adds to the open runs: a fork, or the restart of a run that has ended, that was not done before.
async fn opens_again(store: &dyn Store, control: &Control) -> Result<bool, Error> {
    let workspace = control.workspace;
    let find = |by| store.find(Find { workspace, by });
    if let Some(id) = &control.id
        && find(FindBy::Call(id.clone())).await?.is_some()
    {
        return Ok(false);
    }
    let found = find(FindBy::Id(control.run)).await?;
    Ok(found.is_some_and(|(run, _)| match control.action {
        ControlAction::Restart(_) => run.status().may_restart(),
        _ => true,
    }))
}
