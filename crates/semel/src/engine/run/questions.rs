//! What the code of a run asks the store beside its commits: shared results, who drives the run, and other runs.

use std::time::Duration;

use super::cell::Cell;
use crate::error::Error;
use crate::id::RunId;
use crate::rules::entry::Entry;
use crate::rules::key::Label;
use crate::rules::ledger::Ledger;
use crate::rules::once::{Ask, OnceAnswer, OnceCall, OnceScope};
use crate::rules::status::Status;
use crate::store::{Answer, Find, FindBy, Store};

/// Between two attempts to reach a store that cannot answer.
const PAUSE: Duration = Duration::from_millis(100);

impl Cell {
    /// Asks the store, and asks again after a pause as long as the error is one of those that pass.
    async fn ask<'s, T>(
        &'s self,
        passes: impl Fn(&Error) -> bool + Send,
        mut question: impl FnMut(&'s dyn Store) -> Answer<'s, T> + Send,
    ) -> Result<T, Error> {
        let clock = self.clock();
        loop {
            match question(&*self.core.store).await {
                Err(error) if passes(&error) => {
                    tracing::warn!(%error, run = %self.id, "a run has to wait for an answer of the store");
                    clock.until(clock.now().after(PAUSE)).await;
                }
                answer => return answer,
            }
        }
    }

    /// Whether the run has not been claimed again since this execution claimed it.
    pub(crate) async fn is_ours(&self) -> bool {
        let fence = self.ledger(Ledger::fence);
        let since = self.ask(|_| true, |store| store.ledger(self.workspace, self.id, fence + 1)).await;
        since.is_ok_and(|since| !since.iter().any(|numbered| matches!(numbered.entry, Entry::Claimed { .. })))
    }

    /// The version that the store has of this run; none if the run is forgotten.
    pub(crate) async fn stored_version(&self) -> Option<u64> {
        let find = || Find { workspace: self.workspace, by: FindBy::Id(self.id) };
        let found = self.ask(|_| true, |store| store.find(find())).await;
        found.ok().flatten().map(|(run, _)| run.state.version)
    }

    /// A call about a shared result. None if the store knows a later grant than the one that the call names. All of these calls
    /// may be repeated: a second claim by the same run is granted again, and a second result is absorbed.
    pub(crate) async fn once(
        &self,
        scope: &OnceScope,
        label: &Label,
        ask: Ask,
    ) -> Result<Option<OnceAnswer>, Error> {
        let (workspace, run) = (self.workspace, self.id);
        let call =
            || OnceCall { workspace, scope: scope.clone(), label: label.clone(), run, ask: ask.clone() };
        let passes = |error: &Error| matches!(error, Error::Unavailable(_) | Error::Unknown(_));
        match self.ask(passes, |store| store.once(call())).await {
            Ok(answer) => Ok(Some(answer)),
            Err(Error::OnceLost { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The status of another run of this workspace, and its ledger if it has ended. None if there is no such run.
    pub(crate) async fn other_run(&self, run: RunId) -> Result<Option<(Status, Vec<Entry>)>, Error> {
        let find = Find { workspace: self.workspace, by: FindBy::Id(run) };
        let Some((header, _)) = self.core.store.find(find).await? else { return Ok(None) };
        let ledger = match header.status().is_terminal() {
            true => self.core.store.ledger(self.workspace, run, 1).await?,
            false => Vec::new(),
        };
        Ok(Some((header.status(), ledger.into_iter().map(|numbered| numbered.entry).collect())))
    }
}
