//! A payment provider with bad days: it is slow, answers with errors, and loses answers to what it has done.
//!
//! `books` is its memory and its file, `desk` how it answers, `serve` the desk as a process of its
//! own, `wire` the way to it.

mod books;
mod desk;
mod serve;
mod wire;

pub(crate) use self::books::{Books, EffectKind, EffectRequest, Event, Note, notes};
pub(crate) use self::desk::{Desk, Temper, log};
pub(crate) use self::serve::serve;
pub(crate) use self::wire::Wire;
