//! Semel: a durable workflow engine in which every effect takes place once.

pub mod clock;
pub mod error;
pub mod id;
pub mod rules;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, Result};
