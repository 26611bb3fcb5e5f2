//! How large a run of a worker may become: the entries of its ledger, and the generations of its children.

use semel::error::{Error, Result};
use semel::id::WorkspaceId;
use semel::remote::wire::{DraftView, PlacedDraft};
use semel::rules::ledger::Ledger;
use semel::store::{Find, FindBy};

use crate::app::App;

/// Entries of one run's ledger: ten times the longest history that is tested. Each rebuild of the run reads all of them.
const MOST_ENTRIES: u64 = 1_000_000;
/// Bytes of one run's ledger in memory. A run that needs more keeps its values elsewhere, or hands its work to children.
const LEDGER_BYTES: usize = 512 * 1024 * 1024;
/// Generations of runs, each started by the one before. A run that starts itself as its child would never end.
const MOST_GENERATIONS: usize = 64;

/// Refuses a commit to a run that is as large as a run may be. The bounds are generous, so it is asked before the commit:
/// the last one may go beyond them.
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
