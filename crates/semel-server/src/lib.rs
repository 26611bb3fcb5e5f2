//! The binary `semel`: a REST server, remote workers, operations and the command line, on the engine of the library `semel`.
//!
//! - [`api`]: what travels over HTTP. [`http`]: the routes. [`access`]: who calls, and what they may do.
//! - [`app`]: what all routes share. [`config`]: what a server is told. [`serve`]: the server as a process.
//!   [`metrics`]: what is counted.
//! - [`definitions`]: workflows as documents. [`tasks`]: what their steps do. [`connections`]: what they call.
//!   `databases`: statements in the users' databases.
//!   [`approvals`]: questions to people. [`senders`]: addresses of hooks for senders without an API key.
//! - [`ui`]: the web console.
//! - [`cli`]: the command line. [`demo`]: the order workflow that newcomers meet first.

pub mod access;
pub mod api;
pub mod app;
pub mod approvals;
mod bounded;
pub mod cli;
pub mod config;
pub mod connections;
mod databases;
pub mod definitions;
pub mod demo;
pub mod http;
pub mod metrics;
pub mod models;
mod records;
pub mod senders;
pub mod serve;
pub mod tasks;
pub mod ui;

/// The Rust code of the documentation is compiled with the doctests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/start.md")]
    struct StartPage;
    #[doc = include_str!("../../../docs/hooks.md")]
    struct Hooks;
}
