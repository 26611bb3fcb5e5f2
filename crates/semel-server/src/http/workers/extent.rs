//! Limits on a worker's run: the size of its ledger, and its children.

use semel::error::{Error, Result};
use semel::id::{RunId, WorkspaceId};
use semel::remote::wire::{DraftView, PlacedDraft};
use semel::rules::ledger::{Ledger, LedgerBounds};
use semel::rules::queue;
use semel::store::{Find, FindBy};

use crate::access::StartsChildren;
use crate::app::App;

/// Refuses a commit to a run whose ledger is full. The check is made before the commit, so the last one may exceed the
/// limit. An engine that keeps the bounds by itself has a tenth more, for the clean-up and the end of such a run.
pub(super) fn check_size(ledger: &Ledger, bounds: LedgerBounds) -> Result<()> {
    let LedgerBounds { entries, bytes } = bounds;
    let bounds = LedgerBounds { entries: entries + entries / 10, bytes: bytes + bytes / 10 };
    match ledger.is_full(bounds) {
        true => Err(Error::Validation(format!("the ledger of {} is full: {bounds}", ledger.run().id()))),
        false => Ok(()),
    }
}

/// What is known of the run that has started a run.
pub(super) enum ParentLook {
    /// Its id; none if the run is no child.
    Known(Option<RunId>),
    /// The run's header was not read.
    Unread,
}

/// Lets a commit start children, or refuses it. Steps of queues are no children in this sense: they start none.
pub(super) async fn admit_children(
    app: &App,
    (workspace, run): (WorkspaceId, RunId),
    parent: ParentLook,
    drafts: &[PlacedDraft],
) -> Result<()> {
    let is_child = |placed: &&PlacedDraft| match &placed.draft {
        DraftView::StartChild { workflow, .. } => queue::queue(workflow).is_none(),
        DraftView::OpenHook { .. } => false,
    };
    let children = drafts.iter().filter(is_child).count() as u64;
    if children == 0 {
        return Ok(());
    }
    let parent = match parent {
        ParentLook::Known(parent) => parent,
        ParentLook::Unread => {
            let found = app.store.find(Find { workspace, by: FindBy::Id(run) }).await?;
            found.and_then(|(run, _)| run.new.parent)
        }
    };
    app.children.admit(StartsChildren { workspace, run, parent, children }).await
}
