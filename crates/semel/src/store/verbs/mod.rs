//! The verbs: one file per durable transition. Rules decide, [`Tx`](super::tx::Tx) keeps, this joins them.

mod claim;
mod commit;
mod control;
mod deadline;
mod deliver;
mod export;
mod finish;
mod import;
mod lease;
mod list;
mod once;
mod read;
mod record;
mod start;
mod sweep;

pub(crate) use claim::ClaimRows;
pub(crate) use deadline::Ended;
pub(crate) use export::{ExportPage, Sound};
pub(crate) use import::Import;
#[cfg(feature = "sqlite")]
pub(crate) use lease::is_alive;
pub(crate) use read::{
    CountInbox, FlushReceipts, ReadDues, ReadInbox, ReadLedger, ReadReceipts, entries_of, message_of,
};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use start::NewStart;
pub(crate) use start::{PeekStart, StartRun};
