//! A store around a store: written as what differs, everything else is forwarded.
//!
//! [`StoreLayer`] has all calls of [`Store`], each of which goes through [`StoreLayer::around`] unless the layer says
//! otherwise. [`Layered`] makes a store of it. The calls stand in one table, so no layer can leave one out.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::{
    Answer, Archive, Arrival, Claims, Counts, DuplicatesPage, DuplicatesQuery, Find, Glance, HookPage,
    HookQuery, KeyPage, KeyQuery, Lease, LedgerPart, NodeFacts, Numbered, OpenVersions, Page, Part, Query,
    RunCounts, RunTally, Started, StatsQuery, StatsSeries, Store, Sweep, Swept, TallyQuery, Wake, Watch,
};
use crate::clock::Time;
use crate::id::{RunId, WorkspaceId};
use crate::rules::claim::{Claim, Drives};
use crate::rules::commit::{Commit, Saved};
use crate::rules::control::{Control, Controlled};
use crate::rules::deliver::{Deliver, Delivered};
use crate::rules::entry::Outcome;
use crate::rules::once::{OnceAnswer, OnceCall};
use crate::rules::receipt::{ReceiptKind, Receipts};
use crate::rules::record::{Keep, Look, Record};
use crate::rules::run::Run;
use crate::rules::start::Start;

/// A call that has not been made yet: given the store, it is. It borrows nothing, so that a layer may make it elsewhere or
/// later.
pub type StoreWork<T> = Box<dyn FnOnce(Arc<dyn Store>) -> Answer<'static, T> + Send>;

/// Which call passes through a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCall {
    /// Name of the method of [`Store`].
    pub name: &'static str,
    /// Whether the call may change something.
    pub writes: bool,
}

macro_rules! writes {
    (write) => {
        true
    };
    (read) => {
        false
    };
}

/// The table of calls, and what follows from it.
macro_rules! calls {
    ($($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        /// The calls of [`Store`], for a layer around one. See the [module](self).
        pub trait StoreLayer: Send + Sync + 'static {
            /// The store behind the layer.
            fn inner(&self) -> &Arc<dyn Store>;

            /// Makes a call that the layer does not treat on its own.
            fn around<T: Send + 'static>(&self, call: StoreCall, work: StoreWork<T>) -> Answer<'_, T>;

            $(
                #[doc = concat!("[`Store::", stringify!($name), "`]; passed to [`around`](Self::around) by default.")]
                fn $name(&self, $($arg: $type),*) -> Answer<'_, $answer> {
                    let call = StoreCall { name: stringify!($name), writes: writes!($kind) };
                    let work = move |store: Arc<dyn Store>| -> Answer<'static, $answer> {
                        Box::pin(async move { store.$name($($arg),*).await })
                    };
                    self.around(call, Box::new(work))
                }
            )*

            /// [`Store::wakes`]; forwarded by default.
            fn wakes(&self) -> broadcast::Receiver<Wake> {
                self.inner().wakes()
            }

            /// [`Store::archive`]; forwarded by default.
            fn archive(&self) -> Option<&dyn Archive> {
                self.inner().archive()
            }

            /// [`Store::watch`]; forwarded by default.
            fn watch(&self, run: RunId) -> Watch {
                self.inner().watch(run)
            }

            /// [`Store::close`]; forwarded by default.
            fn close(&self) -> Answer<'_, ()> {
                self.inner().close()
            }
        }

        impl<L: StoreLayer> Store for Layered<L> {
            $(
                fn $name(&self, $($arg: $type),*) -> Answer<'_, $answer> {
                    self.0.$name($($arg),*)
                }
            )*

            fn wakes(&self) -> broadcast::Receiver<Wake> {
                self.0.wakes()
            }

            fn archive(&self) -> Option<&dyn Archive> {
                self.0.archive()
            }

            fn watch(&self, run: RunId) -> Watch {
                self.0.watch(run)
            }

            fn close(&self) -> Answer<'_, ()> {
                self.0.close()
            }
        }
    };
}

calls! {
    write start(start: Start) -> Started;
    read dues(workflows: Vec<Drives>) -> Vec<Option<Time>>;
    write claim(claim: Claim) -> Claims;
    write commit(commit: Commit) -> Saved;
    write deliver(deliver: Deliver) -> Delivered;
    write control(control: Control) -> Controlled;
    write once(once: OnceCall) -> OnceAnswer;
    write lease(lease: Lease) -> Time;
    write keep(keep: Keep) -> Record;
    write sweep(sweep: Sweep) -> Swept;
    read find(find: Find) -> Option<(Run, Option<Outcome>)>;
    read list(query: Query) -> Page;
    read keys(query: KeyQuery) -> KeyPage;
    read glances(runs: Vec<Run>) -> Vec<Glance>;
    read hooks(query: HookQuery) -> HookPage;
    read tally(query: TallyQuery) -> RunTally;
    read versions(workspace: WorkspaceId, cap: usize) -> OpenVersions;
    read nodes(workspace: WorkspaceId, cap: usize) -> Vec<NodeFacts>;
    read ledger(workspace: WorkspaceId, run: RunId, from: u64) -> Vec<Numbered>;
    read ledger_part(part: Part) -> LedgerPart;
    read inbox(workspace: WorkspaceId, run: RunId, from: u64) -> Vec<Arrival>;
    read inbox_part(part: Part) -> Vec<Arrival>;
    read unconsumed(workspace: WorkspaceId, run: RunId) -> u64;
    read receipts(workspace: WorkspaceId, run: RunId) -> Vec<(ReceiptKind, Receipts)>;
    read duplicates(query: DuplicatesQuery) -> DuplicatesPage;
    read stats(query: StatsQuery) -> StatsSeries;
    read records(look: Look) -> Vec<Record>;
    read counts(cap: u64) -> Counts;
    read counts_in(workspace: WorkspaceId, cap: u64) -> RunCounts;
    read open_runs(workspace: WorkspaceId, cap: u64) -> u64;
}

/// A layer as a store.
#[derive(Clone, Debug)]
pub struct Layered<L>(
    /// The layer, which knows the store behind it.
    pub L,
);

impl<L> Deref for Layered<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.0
    }
}
