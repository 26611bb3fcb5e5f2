//! Where a process dies.

use std::fmt;

/// A moment at which something goes wrong: as a rule the engine dies, with all that it has in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// At its n-th durable write, from 1.
    Write(usize, Side),
    /// At the body of the step at a path.
    Body(String, Moment),
    /// At its n-th durable write the store does not answer, and the engine lives on: the write did not take place
    /// ([`Error::Unavailable`](crate::Error::Unavailable)), or it did and its outcome is unknown
    /// ([`Error::Unknown`](crate::Error::Unknown)).
    Answer(usize, Side),
}

/// What a crash leaves of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It did not take place.
    Before,
    /// It took place, and its answer was lost.
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
            Self::Answer(number, Side::Before) => write!(f, "not, but write {number} did not take place"),
            Self::Answer(number, Side::After) => write!(f, "not, but the answer of write {number} was lost"),
            Self::Body(path, Moment::Entered) => write!(f, "when {path} is entered"),
            Self::Body(path, Moment::Returned) => write!(f, "when {path} has returned"),
        }
    }
}
