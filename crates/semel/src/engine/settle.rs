//! Finds out whether a commit that met an error took place, and repeats it until the outcome is certain.

use std::time::Duration;

use super::Core;
use super::run::Cell;
use crate::error::{Error, Result};
use crate::rules::commit::{Commit, CommitFate, Saved};
use crate::rules::control::{Control, ControlAction};
use crate::sabotage::{self, Bug};

/// Between two attempts to reach a store that cannot answer.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

impl Core {
    /// Answers a commit that met an error: when it can be said for certain. Either it is saved, or it never will be.
    pub(super) async fn settle(&self, cell: &Cell, commit: Commit, error: Error) -> Result<Saved> {
        // Once it is unknown whether it took place, no later answer says that it did not take place: only the ledger does.
        let mut unknown = false;
        let mut error = error;
        loop {
            let again = unknown;
            unknown |= matches!(error, Error::Unknown(_));
            let lost = || Err(Error::Concurrency { run: cell.id, expected: commit.expected() });
            match error {
                Error::TooEarly { until, now } => {
                    // The store's clock is behind what was thought of it.
                    self.store_time.is_only(now, self.clock.now());
                    self.clock.until(self.local(until)).await;
                }
                Error::Unavailable(error) => {
                    tracing::warn!(%error, run = %cell.id, "a commit has to wait for the store");
                    self.pause().await;
                }
                Error::Unknown(_) if sabotage::commits(Bug::UnknownIsSaved) => {
                    return Ok(Saved { version: commit.expected() + commit.count(), ..Saved::default() });
                }
                Error::Unknown(_) if sabotage::commits(Bug::UnknownIsRefused) => return lost(),
                Error::Unknown(error) if !sabotage::commits(Bug::UnknownPauses) => {
                    tracing::warn!(%error, run = %cell.id, "it is unknown whether a commit took place; looking");
                    if again {
                        self.pause().await;
                    }
                }
                // It has come through, or another node has the run: what is in its place tells. If nothing is, the run has
                // ended and its history is forgotten.
                Error::Concurrency { .. } if unknown => {
                    return self.look_up(cell, &commit).await.unwrap_or_else(lost);
                }
                Error::Concurrency { .. } => return lost(),
                refused => match self.refuse(cell, &commit, &refused).await {
                    Err(Error::Concurrency { .. }) if unknown => {
                        return self.look_up(cell, &commit).await.unwrap_or_else(lost);
                    }
                    Ok(()) | Err(Error::Concurrency { .. }) => return lost(),
                    // Not even that: the same again, until the store has an answer.
                    Err(error) => {
                        tracing::warn!(%error, run = %cell.id, "a run cannot be paused yet");
                        self.pause().await;
                    }
                },
            }
            if unknown && let Some(found) = self.look_up(cell, &commit).await {
                return found;
            }
            error = match self.store.commit(commit.clone()).await {
                Ok(saved) => return Ok(saved),
                Err(error) => error,
            };
        }
    }

    async fn pause(&self) {
        self.clock.until(self.clock.now().after(PAUSE)).await;
    }

    /// Pauses a run whose commit the store does not take.
    async fn refuse(&self, cell: &Cell, commit: &Commit, error: &Error) -> Result<()> {
        tracing::error!(%error, run = %cell.id, "a commit was refused; the run is paused");
        let control = Control {
            workspace: cell.workspace,
            run: cell.id,
            action: ControlAction::Pause,
            by: format!("engine: {error}"),
            id: None,
            expected: Some(commit.expected()),
        };
        self.store.control(control).await.map(drop)
    }

    /// Finds out whether a commit took place. None if it has not taken place yet.
    async fn look_up(&self, cell: &Cell, commit: &Commit) -> Option<Result<Saved>> {
        let (run, expected) = (commit.run(), commit.expected());
        let entries = loop {
            match self.store.ledger(cell.workspace, run, expected + 1).await {
                Ok(entries) => break entries,
                // It was taken over and has ended since, long enough ago to be forgotten.
                Err(Error::RunNotFound(_)) => return Some(Err(Error::Concurrency { run, expected })),
                Err(error) => {
                    tracing::warn!(%error, %run, "it cannot be looked up whether a commit took place; trying again");
                    self.pause().await;
                }
            }
        };
        match commit.fate(entries.into_iter().map(|numbered| numbered.entry)) {
            CommitFate::Saved(saved) => Some(Ok(saved)),
            CommitFate::Open => None,
            CommitFate::Lost => Some(Err(Error::Concurrency { run, expected })),
        }
    }
}
