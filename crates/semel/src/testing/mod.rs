//! For tests.
//!
//! Of workflows: a [clock](ManualClock) that stands still, a [world](Effects) that counts what it was asked to do, the
//! [history](fn@history) of a run with the questions that tests ask of it, and a [`Crasher`] that kills the engine wherever
//! that may hurt.
//!
//! Of stores: the [`suite`] that every store passes, and the [`differential`] test that plays the same calls on several
//! of them; their [statements] for tests that ask a database how it executes them.
//!
//! Of readers: random [damage] to valid texts. [`Dice`] draw what is random, from a seed.

mod clock;
pub(crate) mod crash;
pub mod damage;
mod dice;
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
pub use history::{History, history};
