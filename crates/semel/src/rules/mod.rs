//! The rules: data in, decision out. No IO, no clock, no async, so every one of them is tested as a table.
//!
//! Here stand the identities ([`key`], [`path`], [`json`]), the vocabulary ([`entry`], [`run`], [`status`]) and one file
//! for each decision: [`start`], [`claim`], [`commit`], [`step`], [`fence`], [`deliver`], [`control`], [`once`], [`retry`],
//! [`queue`], [`finish`], [`deadline`], [`receipt`], [`record`]. What a run's entries say together is [`ledger`],
//! and what a store holds, apart from any store, [`archive`]. How decisions are kept is the store's business.

pub mod archive;
pub mod claim;
pub mod commit;
pub mod control;
pub mod deadline;
pub mod deliver;
pub mod entry;
pub mod fence;
pub mod finish;
pub mod json;
pub mod key;
pub mod ledger;
pub mod once;
pub mod path;
pub mod queue;
pub mod receipt;
pub mod record;
pub mod retry;
pub mod run;
pub mod start;
pub mod status;
pub mod step;
