//! Where a process dies.

use std::fmt;

/// A moment at which the engine dies, with all that it has in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// At its n-th durable write, from 1.
    Write(usize, Side),
    /// At the body of the step at a path.
    Body(String, Moment),
}

/// What a crash leaves of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It did not take place.
    Before,
    /// It took place, and nobody was told.
    After,
}

/// When a crash meets a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Its body is about to begin.
    Entered,
    /// Its body is over, and nothing of it is recorded.
    Returned,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(number, Side::Before) => write!(f, "before write {number}"),
            Self::Write(number, Side::After) => write!(f, "after write {number}"),
            Self::Body(path, Moment::Entered) => write!(f, "when {path} is entered"),
            Self::Body(path, Moment::Returned) => write!(f, "when {path} has returned"),
        }
    }
}
