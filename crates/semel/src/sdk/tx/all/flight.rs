//! Branches that may be prepared while a block is under way. They are ended here if the block's run is cancelled meanwhile.
//!
//! A run that another node claims has an owner that sees to them. A run that is cancelled has none: its branches would stay, and
//! they would keep their rows locked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::part::within;
use super::recover::fate;
use super::resource::Resource;
use crate::fail::Result;
use crate::rules::branch::{BranchFate, BranchName};
use crate::sdk::ctx::Ctx;
use crate::sdk::tx::perform::PAUSE;

/// For how long the end of a run is waited for that has let go of its branches. What is left then is listed by
/// [`prepared_branches`](super::prepared_branches).
const PATIENCE: Duration = Duration::from_secs(30);

/// The branches of one attempt that may be prepared.
pub(super) struct InFlight {
    ctx: Ctx,
    all: Vec<Arc<dyn Resource>>,
    begun: Mutex<Vec<(usize, BranchName)>>,
}

impl InFlight {
    pub(super) fn new(ctx: &Ctx, all: &[Arc<dyn Resource>]) -> Self {
        Self { ctx: ctx.clone(), all: all.to_vec(), begun: Mutex::default() }
    }

    /// A branch may be prepared from here on.
    pub(super) fn begin(&self, i: usize, name: &BranchName) {
        self.lock().push((i, name.clone()));
    }

    /// The branches that may be prepared.
    pub(super) fn begun(&self) -> Vec<(usize, BranchName)> {
        self.lock().clone()
    }

    /// The branches are ended, or the ledger has a decision about them.
    pub(super) fn land(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(usize, BranchName)>> {
        // Every change is a single call.
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let begun = std::mem::take(&mut *self.lock());
        if begun.is_empty() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(see_to(self.ctx.clone(), self.all.clone(), begun));
        }
    }
}

/// Ends branches as the ledger says, as soon as their run has ended.
async fn see_to(ctx: Ctx, all: Vec<Arc<dyn Resource>>, mut begun: Vec<(usize, BranchName)>) {
    let clock = ctx.cell.clock();
    let until = clock.now().after(PATIENCE);
    while !begun.is_empty() && clock.now() < until {
        let mut left = Vec::new();
        for (i, name) in begun {
            if let Err(fail) = end(&ctx, &*all[i], &name).await {
                tracing::debug!(branch = %name, %fail, "a prepared branch is not ended yet");
                left.push((i, name));
            }
        }
        begun = left;
        clock.until(clock.now().after(PAUSE)).await;
    }
}

/// Ends a branch as the ledger of its run says; an error as long as that is not known, or not done.
async fn end(ctx: &Ctx, resource: &dyn Resource, name: &BranchName) -> Result<()> {
    let clock = ctx.cell.clock();
    match fate(ctx, name).await? {
        BranchFate::Open => Err(crate::fail::Fail::retryable("its run has not ended")),
        BranchFate::End(how) => {
            if within(clock, resource.list()).await?.contains(name) {
                within(clock, resource.end(name, how)).await?;
            }
            Ok(())
        }
    }
}
