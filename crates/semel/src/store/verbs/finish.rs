//! The end of a run: its last entries, and everything elsewhere that changes with it, in the same transaction.

use crate::error::Result;
use crate::rules::entry::{Entry, Message, Outcome};
use crate::rules::run::Run;
use crate::rules::status::Status;
use crate::store::tx::StoreTx;

use super::once::tell_waiters;
use super::start::append_at;

/// Ends a run: `run` carries its final state, the entries are those that ended it.
pub(super) async fn end_run<T: StoreTx>(
    tx: &mut T,
    run: &mut Run,
    expected: u64,
    entries: &[Entry],
) -> Result<()> {
    append_at(tx, run, expected, entries).await?;
    let outcome = entries.iter().rev().find_map(Entry::outcome);
    untie(tx, run, outcome.expect("an ending commit has an outcome")).await.map(drop)
}

/// Frees the tokens of a run, gives its outcome to its watchers, tells the children of a cancelled run, and passes on its
/// grants of `run_once`. Returns whether there was any of these. A run without ties has none.
pub(super) async fn untie<T: StoreTx>(tx: &mut T, run: &Run, outcome: Outcome) -> Result<bool> {
    tx.delete_hooks(run.num).await?;
    for watcher in tx.take_watchers(run.num).await? {
        let message = Message::ChildEnded { child: watcher.visit, run: run.id(), outcome: outcome.clone() };
        // A watcher that has ended itself needs no answer.
        tx.arrive(watcher.num, &message).await?;
    }
    if run.status() == Status::Cancelled {
        for child in tx.open_children(run.id()).await? {
            tx.arrive(child.num, &Message::ParentCancelled { parent: run.id() }).await?;
        }
    }
    free_onces(tx, run).await
}

/// Frees the onces that a resting run has claimed; gives whether there were any. No branch is making their results any more: it
/// died, lost a race, or was stopped.
pub(super) async fn leave_onces<T: StoreTx>(tx: &mut T, run: &Run) -> Result<bool> {
    match run.state.ties && run.rests(tx.now()) {
        true => free_onces(tx, run).await,
        false => Ok(false),
    }
}

/// Frees the onces that a run has claimed and not settled; gives whether there were any.
async fn free_onces<T: StoreTx>(tx: &mut T, run: &Run) -> Result<bool> {
    let onces = tx.held_once(run.id()).await?;
    let freed = !onces.is_empty();
    for held in onces {
        tx.put_once(held.workspace, &held.scope, &held.label, None).await?;
        tell_waiters(tx, &held.at()).await?;
    }
    Ok(freed)
}
