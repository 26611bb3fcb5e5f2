//! A run in memory: everything that its driver and its workflow's code share.
//!
//! `cell` is the run with its lock, `state` what is under it: the ledger, the `inbox`, the durable `waits`. `signal` wakes
//! the driver. `port`, `wait` and `questions` are what the code of a workflow may ask of its run; `sdk` uses nothing else of the engine's
//! inside, and never holds the lock.

pub(in crate::engine) mod cell;
pub(in crate::engine) mod inbox;
mod port;
mod questions;
pub(in crate::engine) mod signal;
pub(in crate::engine) mod state;
mod wait;
pub(in crate::engine) mod waits;

pub(crate) use self::cell::Cell;
pub(crate) use self::port::{Addition, BeginEffect, Intent};
pub(crate) use self::wait::OnceTurn;
pub(crate) use super::replay::watch::Requested;
