//! Tools for tests.
//!
//! Of workflows: a [clock](ManualClock) that stands still, a [world](Effects) that counts calls and effects, the
//! [history](fn@history) of a run with the questions that tests ask of it, and a [`Crasher`] that kills the engine before and
//! after every durable write.
//!
//! Of stores: the [`suite`] that every store passes; their [statements] for tests that ask a database how it executes
//! them. With the feature `proptest` also a `differential` test, which plays the same random calls on several stores.
//!
//! Of readers, with the feature `proptest`: random `damage` to valid texts. [`Dice`] draw what is random, from a seed.

mod clock;
pub(crate) mod crash;
#[cfg(feature = "proptest")]
pub mod damage;
mod dice;
#[cfg(feature = "proptest")]
pub mod differential;
mod effects;
mod history;
#[cfg(all(feature = "sqlite", feature = "postgres"))]
pub mod statements;
pub mod suite;

pub use clock::ManualClock;
pub use crash::{Crasher, Ended, Moment, Point, Scene, Side};
pub use dice::Dice;
pub use effects::Effects;
pub use history::{LedgerView, history};
