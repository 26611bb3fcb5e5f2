//! The store of an engine that will die: once it is dead, no call takes place or is answered.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::fate::Fate;
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::Outcome;
use crate::rules::once::{Once, OnceAnswer};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::Start;
use crate::store::{
    Answer, Arrival, Claims, Find, Lease, LeaseAct, Numbered, Page, Query, Started, Store, Sweep, Swept, Wake,
};

/// What an engine that will die sees of a store that lives on.
pub(super) struct Mortal {
    store: Arc<dyn Store>,
    fate: Arc<Fate>,
}

impl Mortal {
    pub(super) fn new(store: Arc<dyn Store>, fate: Arc<Fate>) -> Self {
        Self { store, fate }
    }

    /// A call at which the engine does not die, but which a dead one cannot make.
    fn read<'a, T: Send + 'a>(&'a self, call: impl FnOnce() -> Answer<'a, T> + Send + 'a) -> Answer<'a, T> {
        Box::pin(async move {
            self.fate.take_time().await;
            self.fate.breathe().await;
            let answer = call().await;
            self.fate.take_time().await;
            self.fate.breathe().await;
            answer
        })
    }

    /// A durable write: the engine may die before it, or after it and before its answer.
    fn write<'a, T: Send + 'a>(
        &'a self,
        name: &'static str,
        call: impl FnOnce() -> Answer<'a, T> + Send + 'a,
    ) -> Answer<'a, T> {
        self.read(move || {
            Box::pin(async move {
                self.fate.before_write(name)?;
                self.fate.breathe().await;
                // What was refused has written nothing.
                let answer = call().await?;
                self.fate.wrote(name)?;
                Ok(answer)
            })
        })
    }
}

impl Store for Mortal {
    fn start(&self, start: Start) -> Answer<'_, Started> {
        self.write("start", move || self.store.start(start))
    }

    fn dues(&self, workflows: Vec<Drives>) -> Answer<'_, Vec<Option<Time>>> {
        self.read(move || self.store.dues(workflows))
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claims> {
        self.read(move || {
            Box::pin(async move {
                let claims = self.store.claim(claim).await?;
                // Most claims find nothing. What was before one that finds something was after the write before.
                if !claims.runs.is_empty() {
                    self.fate.wrote("claim")?;
                }
                Ok(claims)
            })
        })
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Saved> {
        self.write("commit", move || self.store.commit(commit))
    }

    fn deliver(&self, deliver: Deliver) -> Answer<'_, Delivered> {
        self.write("deliver", move || self.store.deliver(deliver))
    }

    fn control(&self, control: Control) -> Answer<'_, Controlled> {
        self.write("control", move || self.store.control(control))
    }

    fn once(&self, once: Once) -> Answer<'_, OnceAnswer> {
        self.write("once", move || self.store.once(once))
    }

    fn lease(&self, lease: Lease) -> Answer<'_, Time> {
        if matches!(lease.act, LeaseAct::Join(_)) {
            self.fate.joined(lease.node);
        }
        self.read(move || self.store.lease(lease))
    }

    fn keep(&self, keep: Keep) -> Answer<'_, Record> {
        self.write("keep", move || self.store.keep(keep))
    }

    fn sweep(&self, sweep: Sweep) -> Answer<'_, Swept> {
        self.read(move || self.store.sweep(sweep))
    }

    fn find(&self, find: Find) -> Answer<'_, Option<(Run, Option<Outcome>)>> {
        self.read(move || self.store.find(find))
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        self.read(move || self.store.list(query))
    }

    fn ledger(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Numbered>> {
        self.read(move || self.store.ledger(workspace, run, from))
    }

    fn inbox(&self, workspace: WorkspaceId, run: RunId, from: u64) -> Answer<'_, Vec<Arrival>> {
        self.read(move || self.store.inbox(workspace, run, from))
    }

    fn receipts(&self, workspace: WorkspaceId, run: RunId) -> Answer<'_, Vec<(ReceiptKind, Receipts)>> {
        self.read(move || self.store.receipts(workspace, run))
    }

    fn records(&self, look: Look) -> Answer<'_, Vec<Record>> {
        self.read(move || self.store.records(look))
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.store.wakes()
    }

    /// The store lives on.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
