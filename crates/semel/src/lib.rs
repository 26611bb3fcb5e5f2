//! Semel: a durable workflow engine in which every effect takes place once.
//!
//! This crate is what people embed. So far it holds the foundation, in two layers:
//!
//! - [`rules`]: what is decided. Pure functions over plain data: keys and fingerprints, what a start means when its key is
//!   in use, which entry may follow which, when to retry, what to forget.
//! - [`store`]: where it is kept. [`store::Store`] has one method for each durable transition;
//!   [`memory`](store::memory), [`sqlite`](store::sqlite) and `postgres` implement it.
//!
//! A run is a numbered list of entries, its ledger. Its length is the run's version, and every write says which version
//! it has seen:
//!
//! ```
//! use std::sync::Arc;
//! use semel::clock::{Clock, SystemClock};
//! use semel::id::{RunId, WorkspaceId};
//! use semel::rules::{json::Payload, key::Key, path::Name, start::{Start, Verdict}};
//! use semel::store::{Store, memory::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> semel::Result<()> {
//! let clock = Arc::new(SystemClock::new());
//! let store = MemoryStore::new(clock.clone());
//! let order = || -> semel::Result<Start> {
//!     let input = Payload::parse(r#"{"order":7}"#)?;
//!     let key = Some(Key::new("order-7")?);
//!     Ok(Start::new(WorkspaceId::DEFAULT, RunId(clock.uuid()), Name::new("process-order")?, input, key))
//! };
//! let first = store.start(order()?).await?;
//! let again = store.start(order()?).await?;
//! assert_eq!(first.verdict, Verdict::Created);
//! assert_eq!((again.verdict, again.run.id()), (Verdict::Attached, first.run.id()));
//! assert_eq!(again.run.state.version, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `sqlite` (default): the embedded store.
//! - `postgres`: the store for several processes.
//! - `sqlx`, or one of `sqlx-postgres` and `sqlx-sqlite`: transactional steps ([`tx`]) on pools of sqlx 0.9. A program
//!   links one SQLite: sqlx 0.9 and Semel agree on that of rusqlite 0.39.
//! - `testing`: the suite that every store passes, a clock that stands still, a store with faults.

pub mod clock;
pub mod engine;
pub mod error;
pub mod id;
pub mod rules;
pub mod sdk;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use engine::{Engine, Limits, RunHandle};
pub use error::Error;
pub use rules::retry::Retry;
pub use rules::start::Policy as OnConflict;
pub use sdk::tx;
pub use sdk::{Attempt, Ctx, Fail, FailExt, Once, Result, WorkflowRef, fatal};
