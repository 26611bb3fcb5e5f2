//! A payment provider with bad days: it is slow, answers with errors, and loses answers to what it has done.
//!
//! `books` is what it knows and keeps in a file, `desk` how it treats whoever asks, `serve` the desk as a process of its
//! own, `wire` the way to it.

mod books;
mod desk;
mod serve;
mod wire;

pub(crate) use self::books::{Ask, Books, Event, Kind, Note, notes};
pub(crate) use self::desk::{Desk, Temper, log};
pub(crate) use self::serve::serve;
pub(crate) use self::wire::Wire;
