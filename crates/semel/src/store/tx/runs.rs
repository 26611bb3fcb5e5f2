//! Runs: their headers, their keys, and the guarded change of their state.

use std::collections::HashSet;
use std::future::Future;

use super::LedgerRows;
use crate::error::Result;
use crate::id::{RunId, WorkspaceId};
use crate::rules::key::{Key, Scope};
use crate::rules::run::{NewRun, Run, RunState};
use crate::rules::status::Status;
use crate::store::list::{KeyPrefix, Scan, Scanned};

/// A new run, and its first entries as stored.
#[derive(Clone, Debug)]
pub(crate) struct InsertedRun {
    pub(crate) new: NewRun,
    pub(crate) state: RunState,
    pub(crate) text: String,
}

/// A stretch of an index of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyScan<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) keys: &'a KeyPrefix,
    /// Only keys behind this one.
    pub(crate) after: Option<&'a Key>,
    /// Runs that hold their keys, or those that have lost them.
    pub(crate) held: bool,
    pub(crate) limit: usize,
}

impl KeyScan<'_> {
    /// The least text with which the stretch can begin.
    pub(crate) fn start(&self) -> &str {
        self.after.map_or("", Key::as_str).max(&self.keys.prefix)
    }

    /// The key that is left out if the stretch begins with it; the empty text is no key.
    pub(crate) fn left_out(&self) -> &str {
        self.after.map_or("", Key::as_str)
    }
}

/// Rows of runs in one transaction.
pub(crate) trait RunRows: LedgerRows {
    /// Inserts a run with its first entries and gives it a number; none if its key is held by another, or its id is taken.
    fn insert_run(
        &mut self,
        new: &NewRun,
        state: &RunState,
        text: &str,
    ) -> impl Future<Output = Result<Option<i64>>> + Send;
    /// Inserts runs as [`Self::insert_run`] does each of them, and gives their numbers. A backend may do it in one go.
    fn insert_runs(&mut self, runs: &[InsertedRun]) -> impl Future<Output = Result<Vec<Option<i64>>>> + Send {
        async move {
            let mut nums = Vec::with_capacity(runs.len());
            for InsertedRun { new, state, text } in runs {
                nums.push(self.insert_run(new, state, text).await?);
            }
            Ok(nums)
        }
    }
    /// Which of these keys are held by a run, not locked.
    fn held_keys(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        keys: &[&Key],
    ) -> impl Future<Output = Result<HashSet<Key>>> + Send {
        async move {
            let mut held = HashSet::new();
            for key in keys {
                held.extend(self.holder(workspace, scope, key).await?.map(|run| run.new.key.clone()));
            }
            Ok(held)
        }
    }
    /// The run that holds a key, locked.
    fn holder(
        &mut self,
        workspace: WorkspaceId,
        scope: &Scope,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run, locked.
    fn run(&mut self, id: RunId) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run by its number, locked.
    fn run_at(&mut self, num: i64) -> impl Future<Output = Result<Option<Run>>> + Send;
    /// A run's state, not locked.
    fn status(&mut self, id: RunId) -> impl Future<Output = Result<Option<Status>>> + Send;
    /// Replaces a run's state if its version is still the expected one.
    fn save(
        &mut self,
        num: i64,
        expected: u64,
        state: &RunState,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// The same, with the entries that led to it.
    fn save_with(
        &mut self,
        num: i64,
        expected: u64,
        state: &RunState,
        text: &str,
    ) -> impl Future<Output = Result<bool>> + Send {
        async move {
            let saved = self.save(num, expected, state).await?;
            if saved {
                self.append(num, expected, text).await?;
            }
            Ok(saved)
        }
    }
    /// The one write of a step: `count` entries more, if the version is still the expected one and the run is running.
    fn advance(
        &mut self,
        num: i64,
        expected: u64,
        count: u64,
        text: &str,
    ) -> impl Future<Output = Result<bool>> + Send;
    /// The open runs that a run has started, locked.
    fn open_children(&mut self, parent: RunId) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// One pass over an index of runs.
    fn list(&mut self, scan: &Scan<'_>) -> impl Future<Output = Result<Scanned>> + Send;
    /// Runs by their keys, in the order of the keys' bytes, then by number.
    fn keys(&mut self, scan: &KeyScan<'_>) -> impl Future<Output = Result<Vec<Run>>> + Send;
}
