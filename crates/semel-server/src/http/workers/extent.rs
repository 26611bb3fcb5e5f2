//! Limits on the size of a worker's run: entries of its ledger, and generations of children.

use semel::error::{Error, Result};
use semel::id::WorkspaceId;
use semel::remote::wire::{DraftView, PlacedDraft};
use semel::rules::ledger::Ledger;
use semel::store::{Find, FindBy};

use crate::app::App;

/// Maximum number of entries in a ledger: ten times the longest history that is tested. Each rebuild reads all of
/// them.
const MOST_ENTRIES: u64 = 1_000_000;
/// Maximum size of a ledger in memory, in bytes. A run that needs more keeps its values elsewhere, or uses children.
const LEDGER_BYTES: usize = 512 * 1024 * 1024;
/// Maximum depth of children. It stops a run that starts itself as its child.
const MOST_GENERATIONS: usize = 64;

/// Refuses a commit to a run that has reached a limit. The check is made before the commit, so the last one may
/// exceed it.
pub(super) async fn check(
    app: &App,
    workspace: WorkspaceId,
    ledger: &Ledger,
    drafts: &[PlacedDraft],
) -> Result<()> {
    let run = ledger.run();
    if run.state.version >= MOST_ENTRIES || ledger.weight() >= LEDGER_BYTES {
        return Err(Error::Validation(format!(
            "the ledger of {} is full: a run has at most {MOST_ENTRIES} entries and {LEDGER_BYTES} bytes; hand parts of the \
             work to children",
            run.id()
        )));
    }
    let starts = drafts.iter().any(|placed| matches!(placed.draft, DraftView::StartChild { .. }));
    if !starts {
        return Ok(());
    }
    let mut parent = run.new.parent;
    for _ in 1..MOST_GENERATIONS {
        let Some(id) = parent else { return Ok(()) };
        let found = app.store.find(Find { workspace, by: FindBy::Id(id) }).await?;
        parent = found.and_then(|(run, _)| run.new.parent);
    }
    match parent {
        None => Ok(()),
        Some(_) => Err(Error::Validation(format!(
            "{} is the child of a child, {MOST_GENERATIONS} times over: it may start no children; does a workflow start itself?",
            run.id()
        ))),
    }
}
