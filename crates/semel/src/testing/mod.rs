//! For tests: a clock that stands still, the [`suite`] that every store passes, and the [`differential`] test that
//! plays the same calls on several of them.

mod clock;
pub mod differential;
pub mod suite;

pub use clock::ManualClock;
