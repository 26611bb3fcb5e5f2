//! A commit that met an error: what became of it, or the same again, until it can be said for certain.

use std::time::Duration;

use super::Core;
use super::cell::Cell;
use crate::error::{Error, Result};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Action, Control};
use crate::rules::entry::Entry;
use crate::sabotage::{self, Bug};

/// Between two attempts to reach a store that cannot answer.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

impl Core {
    /// Answers a commit that met an error: when it can be said for certain.
    pub(super) async fn settle(&self, cell: &Cell, commit: Commit, error: Error) -> Result<Saved> {
        match error {
            Error::TooEarly { until, now } => {
                // The store's clock is behind what was thought of it.
                self.store_time.is_only(now, self.clock.now());
                self.clock.until(self.local(until)).await;
                self.store.commit(commit).await
            }
            Error::Unavailable(error) => {
                tracing::warn!(%error, run = %cell.id, "a commit has to wait for the store");
                self.clock.until(self.clock.now().after(PAUSE)).await;
                self.store.commit(commit).await
            }
            Error::Unknown(_) if sabotage::commits(Bug::UnknownIsSaved) => {
                Ok(Saved { version: commit.expected() + commit.count(), ..Saved::default() })
            }
            Error::Unknown(_) if sabotage::commits(Bug::UnknownIsRefused) => {
                Err(Error::Concurrency { run: cell.id, expected: commit.expected() })
            }
            Error::Unknown(error) if !sabotage::commits(Bug::UnknownPauses) => {
                tracing::warn!(%error, run = %cell.id, "it is unknown whether a commit took place; looking");
                self.look_up(commit).await
            }
            error => {
                tracing::error!(%error, run = %cell.id, "a commit was refused; the run is paused");
                let control = Control {
                    workspace: self.workspace,
                    run: cell.id,
                    action: Action::Pause,
                    by: format!("engine: {error}"),
                    id: None,
                    expected: Some(commit.expected()),
                };
                match self.store.control(control).await {
                    Ok(_) | Err(Error::Concurrency { .. }) => {
                        Err(Error::Concurrency { run: cell.id, expected: commit.expected() })
                    }
                    // Not even that: the same again, until the store has an answer.
                    Err(error) => Err(Error::Unavailable(Box::new(error))),
                }
            }
        }
    }

    /// Finds out whether a commit took place: nobody else writes what it says at its place.
    async fn look_up(&self, commit: Commit) -> Result<Saved> {
        let (run, expected, count) = (commit.run(), commit.expected(), commit.count());
        let entries = match self.store.ledger(self.workspace, run, expected + 1).await {
            Ok(entries) => entries,
            Err(error) => return Err(Error::Unknown(Box::new(error))),
        };
        if entries.is_empty() {
            return match self.store.commit(commit).await {
                // The lost one may have come through after all.
                Err(lost @ Error::Concurrency { .. }) => Err(Error::Unknown(Box::new(lost))),
                answer => answer,
            };
        }
        let written: Vec<Entry> =
            entries.into_iter().take(count as usize).map(|numbered| numbered.entry).collect();
        match commit.matches(&written) {
            Some(settled) => Ok(Saved { version: expected + count, settled, freed: false }),
            None => Err(Error::Concurrency { run, expected }),
        }
    }
}
