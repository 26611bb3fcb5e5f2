//! For tests: a clock that stands still, and the suite that every store passes.

mod clock;

pub use clock::ManualClock;
