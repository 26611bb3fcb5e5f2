//! The suite that every store passes: each promise as a named case, written once.
//!
//! A store of your own runs it too: implement [`Stores`], and for every [`Case`] of [`cases`] make a [`World`] and hand
//! it to the case, which panics if the store breaks the promise that the case is named for.
//!
//! One file per verb, as everywhere: what is decided under a verb is tested in its file. `repeat` shows that every
//! mutating call can be made again when its answer is lost, `reopen` that every answer is durable.

/// The cases of a file by their functions' names. A case that is not listed is dead code, and so a warning.
macro_rules! promises {
    (on several threads: $($name:ident),* $(,)?) => { promises!(@ true $($name)*); };
    ($($name:ident),* $(,)?) => { promises!(@ false $($name)*); };
    (@ $threads:literal $($name:ident)*) => {
        pub(super) fn cases() -> Vec<super::Case> {
            vec![$(super::Case { name: stringify!($name), threads: $threads, run: |world| Box::pin($name(world)) }),*]
        }
    };
}

mod archive;
mod claim;
mod commit;
mod commit_rule;
mod concurrency;
mod control;
mod counts;
mod deadline;
mod deliver;
mod driver;
mod finish;
mod fork;
mod glance;
mod handover;
mod hook;
mod key;
mod lease;
mod list;
mod mirrored;
mod once;
mod policy;
mod read;
mod receipts;
mod record;
mod reopen;
mod repeat;
mod restart;
mod start;
mod stats;
mod sweep;
mod tally;
mod value;
mod wakes;
mod world;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::ManualClock;
use crate::error::Result;
use crate::store::Store;

pub use world::World;

/// A future of the suite.
pub type SuiteFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of store.
pub trait Stores: Send + Sync + 'static {
    /// What it is called in the names of tests.
    fn name(&self) -> &'static str;
    /// A place without data, which no other test uses.
    fn fresh(&self, clock: Arc<ManualClock>) -> SuiteFuture<'_, Result<Box<dyn Home>>>;
}

/// Where the data of one case is kept.
pub trait Home: Send + Sync + 'static {
    /// Opens the store. Called again, after the store was closed and dropped, it opens the same data.
    fn open(&self) -> SuiteFuture<'_, Result<Arc<dyn Store>>>;
    /// Another instance on the same data, beside the open one; none if the data has one process.
    fn second(&self) -> SuiteFuture<'_, Result<Option<Arc<dyn Store>>>>;
    /// Throws the data away.
    fn discard(&self) -> SuiteFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// One promise of a store, and its test.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise, as a sentence.
    pub name: &'static str,
    /// Whether it is about tasks that meet: run it on several threads.
    pub threads: bool,
    /// Panics if the store breaks it.
    pub run: fn(World) -> Pin<Box<dyn Future<Output = ()>>>,
}

/// All cases, each with a name of its own.
pub fn cases() -> Vec<Case> {
    let all = [
        start::cases(),
        policy::cases(),
        handover::cases(),
        claim::cases(),
        commit::cases(),
        commit_rule::cases(),
        mirrored::cases(),
        deliver::cases(),
        control::cases(),
        counts::cases(),
        restart::cases(),
        fork::cases(),
        once::cases(),
        lease::cases(),
        record::cases(),
        sweep::cases(),
        deadline::cases(),
        finish::cases(),
        wakes::cases(),
        read::cases(),
        receipts::cases(),
        stats::cases(),
        list::cases(),
        glance::cases(),
        hook::cases(),
        key::cases(),
        tally::cases(),
        value::cases(),
        reopen::cases(),
        repeat::cases(),
        concurrency::cases(),
        archive::cases(),
    ];
    all.concat()
}
