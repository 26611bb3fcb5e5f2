//! Why a branch begins no further step: another one has failed.
//!
//! What has begun is waited for, so after a crash it must be visited again although the failure beside it is known by then. A keyed
//! step leaves nothing in the ledger before its end. So a branch stops only where it is certain that its next step cannot have
//! begun: its step before that began in this very execution. That it stopped is recorded, as the skip of a step of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel::{Ctx, Result};

/// Raised when a branch has failed, or has ended the run. Clones are one.
#[derive(Clone, Debug)]
pub(super) struct ListStop(Arc<Flag>);

#[derive(Debug)]
struct Flag {
    raised: AtomicBool,
    around: Option<ListStop>,
}

impl ListStop {
    /// That of a block inside another one.
    pub(super) fn inside(around: Option<&Self>) -> Self {
        Self(Arc::new(Flag { raised: AtomicBool::new(false), around: around.cloned() }))
    }

    pub(super) fn raise(&self) {
        self.0.raised.store(true, Ordering::Relaxed);
    }

    fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed) || self.0.around.as_ref().is_some_and(Self::is_raised)
    }

    /// Whether the branch ends before this step. `fresh` says that the step cannot have begun in an earlier execution.
    pub(super) async fn ends_before(&self, ctx: &Ctx, step: &str, fresh: bool) -> Result<bool> {
        let mark = format!("{step} (stopped)");
        let stops = ctx.has_skipped(&mark)? || (fresh && self.is_raised());
        if stops {
            ctx.cleanup().skip(&mark, "another branch has failed, or has ended the run").await?;
        }
        Ok(stops)
    }
}
