//! The archive: all of a store out, line by line, and into an empty one. How a store moves from one database to another.

use std::future::Future;
use std::ops::ControlFlow;

use super::Answer;
use super::absorb::flush;
use super::serve::Backend;
use super::tx::{HeldOnce, Watcher};
use super::verbs::{ExportPage, Import, IntegrityCheck};
use super::wakes::Wake;
use crate::clock::Time;
use crate::error::Result;
use crate::id::{NodeId, WorkspaceId};
use crate::rules::archive::{ArchiveLine, CallLine};
use crate::rules::key::{Label, RecordId, Token};
use crate::rules::path::Name;
use crate::rules::record::Record;
use crate::rules::run::Run;

/// Takes the lines of an export one by one, and may break it off.
pub type Each<'a> = &'a mut (dyn FnMut(ArchiveLine) -> ControlFlow<()> + Send);

/// Calls on a whole store: export, import, and a check of the file.
pub trait Archive: Send + Sync {
    /// Hands over everything, of one workspace or of all; records only with all of them. PostgreSQL gives a snapshot, also
    /// while others write. The other stores belong to one process, which should not write meanwhile.
    fn export<'a>(&'a self, workspace: Option<WorkspaceId>, each: Each<'a>) -> Answer<'a, ()>;
    /// Puts lines into the store: all of them, or, with an error, none. A line that is there already, exactly like this,
    /// is absorbed; so an import that broke off can be repeated. Refused while a node is at work on the store.
    fn import(&self, lines: Vec<ArchiveLine>) -> Answer<'_, Imported>;
    /// Damage of the file itself, one sentence each. Empty if there is none, and where the database checks its own
    /// files.
    fn sound(&self) -> Answer<'_, Vec<String>>;
}

/// Result of an import, in lines of the archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Lines that were written now.
    pub made: usize,
    /// Lines that the store had already.
    pub absorbed: usize,
}

/// Identity of a `run_once` value.
pub(crate) type OnceAt = (WorkspaceId, String, Label);

/// Where a record stands.
pub(crate) type RecordAt = (Name, RecordId);

/// The rows that only an archive needs: to read what belongs to a run, and to write what was at another time.
pub(crate) trait ArchiveRows: Send {
    /// Runs of all workspaces with a greater number, in order.
    fn runs_after(&mut self, num: i64, limit: usize) -> impl Future<Output = Result<Vec<Run>>> + Send;
    /// The tokens of a run, in order.
    fn tokens_of(&mut self, num: i64) -> impl Future<Output = Result<Vec<Token>>> + Send;
    /// The calls that are remembered with a run, in the order of scope and id.
    fn calls_of(&mut self, num: i64) -> impl Future<Output = Result<Vec<CallLine>>> + Send;
    /// The watchers of a run, in the order in which they began to wait.
    fn watchers_of(&mut self, num: i64) -> impl Future<Output = Result<Vec<Watcher>>> + Send;
    /// The `run_once` values after this one, in the order of workspace, scope and label.
    fn once_after(
        &mut self,
        at: Option<&OnceAt>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<HeldOnce>>> + Send;
    /// The records after this one, expired ones included, in the order of kind and id.
    fn records_after(
        &mut self,
        at: Option<&RecordAt>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send;
    /// A node whose lease lasts.
    fn live_node(&mut self) -> impl Future<Output = Result<Option<NodeId>>> + Send;

    /// Inserts a run as it was, and gives it a number; none if its key is held by another, or its id is taken.
    fn restore_run(&mut self, run: &Run) -> impl Future<Output = Result<Option<i64>>> + Send;
    /// Appends the entries of a commit that was made at another time.
    fn restore_commit(
        &mut self,
        num: i64,
        seq: u64,
        at: Time,
        text: &str,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Puts a message into an inbox that arrived at another time.
    fn restore_message(
        &mut self,
        num: i64,
        arrival: u64,
        at: Time,
        text: &str,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Damage below the rows, one sentence each.
    fn sound(&mut self) -> impl Future<Output = Result<Vec<String>>> + Send {
        async { Ok(Vec::new()) }
    }
}

impl<B: Backend> Archive for B {
    fn export<'a>(&'a self, workspace: Option<WorkspaceId>, each: Each<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            flush(self).await?;
            self.export_all(workspace, each).await
        })
    }

    fn import(&self, lines: Vec<ArchiveLine>) -> Answer<'_, Imported> {
        Box::pin(async move {
            let imported = self.execute(Import(lines)).await?;
            if imported.made > 0 {
                Backend::wakes(self).tell(Wake::Due);
            }
            Ok(imported)
        })
    }

    fn sound(&self) -> Answer<'_, Vec<String>> {
        Box::pin(self.execute(IntegrityCheck))
    }
}

/// All pages, one after the other.
pub(crate) async fn export_pages<B: Backend>(
    store: &B,
    workspace: Option<WorkspaceId>,
    each: Each<'_>,
) -> Result<()> {
    let mut next = Some(ExportPage::first(workspace));
    while let Some(page) = next {
        let (lines, after) = store.execute(page).await?;
        if lines.into_iter().try_for_each(&mut *each).is_break() {
            break;
        }
        next = after;
    }
    Ok(())
}
