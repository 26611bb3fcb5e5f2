//! The verbs: one file per durable transition. Rules decide, [`StoreTx`](super::tx::StoreTx) keeps, this joins them.

mod claim;
mod commit;
mod control;
mod counts;
mod deadline;
mod deliver;
mod export;
mod finish;
mod glance;
mod hook;
mod import;
mod lease;
mod list;
mod once;
mod read;
mod record;
mod refused;
mod start;
mod stats;
mod sweep;
mod tally;

pub(crate) use claim::ClaimRows;
#[cfg(feature = "sabotage")]
pub(crate) use claim::ClaimedRows;
pub(crate) use counts::{CountOpen, ReadCounts, ReadRunCounts, paused_in_doubt};
pub(crate) use deadline::EndedRun;
pub(crate) use export::{ExportPage, IntegrityCheck};
pub(crate) use glance::LookAt;
pub(crate) use import::Import;
#[cfg(feature = "sqlite")]
pub(crate) use lease::is_alive;
pub(crate) use read::{
    CountInbox, FlushReceipts, ReadDues, ReadInbox, ReadLedger, ReadReceipts, entries_of, message_of,
};
pub(crate) use refused::{AskedStart, ReadRefused};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use start::NewStart;
pub(crate) use start::{PeekStart, StartRun};
pub(crate) use stats::FlushStats;
pub(crate) use tally::{ReadNodes, ReadVersions};
