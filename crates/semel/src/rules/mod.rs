//! The rules: data in, decision out. No IO, no clock, no async, so every one of them is tested as a table.
//!
//! It holds the identities ([`key`], [`path`], [`json`]), the vocabulary ([`entry`], [`run`], [`status`]) and one
//! file for each decision: [`start`], [`claim`] and [`family`], [`commit`], [`step`], [`leave`], [`fence`] and [`branch`], [`race`], [`deliver`], [`control`], [`once`],
//! [`retry`], [`queue`], [`finish`], [`deadline`], [`receipt`], [`record`]; [`attention`] is
//! the kind of a pause, [`glance`] what a run does now. [`ledger`] folds a run's entries into its
//! state, and [`archive`] describes the content of a store independently of any database. Storing decisions durably
//! is the job of the store.

pub mod archive;
pub mod attention;
pub mod branch;
pub mod claim;
pub mod commit;
pub mod control;
pub mod deadline;
pub mod deliver;
pub mod entry;
pub mod family;
pub mod fence;
pub mod finish;
pub mod glance;
pub mod json;
pub mod key;
pub mod leave;
pub mod ledger;
pub(crate) mod millis;
pub mod node;
pub mod once;
pub mod path;
pub mod queue;
pub mod race;
pub mod receipt;
pub mod record;
pub mod retry;
pub mod run;
pub mod start;
pub mod stats;
pub mod status;
pub mod step;
