//! The binary `semel`: a REST server, remote workers, operations and the command line, on the engine of the library `semel`.
//!
//! - [`api`]: what travels over HTTP. [`http`]: the routes. [`access`]: who calls, and what they may do.
//! - [`app`]: what all routes share. [`config`]: what a server is told. [`serve`]: the server as a process.
//!   [`metrics`]: what is counted.
//! - [`cli`]: the command line. [`demo`]: the order workflow that newcomers meet first.

pub mod access;
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod demo;
pub mod http;
pub mod metrics;
pub mod serve;

/// The Rust of the book is compiled with the doctests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/start.md")]
    struct Start;
    #[doc = include_str!("../../../docs/hooks.md")]
    struct Hooks;
}
