//! Kinds of connections. Each has a file of its own and one line in [`KINDS`]; what differs between them is behind [`Target`] and
//! [`Settings`], and nothing else knows about them.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use super::members::Members;
use super::secret::Redactor;
#[cfg(feature = "mail")]
use super::smtp;
use super::{Connections, TIMEOUT, http, model, postgres, sqlite, webhook};

/// Reads secrets by the names of variables.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A kind of connection.
pub(super) struct ConnectionKind {
    /// Value of `kind` in the configuration.
    pub(super) name: &'static str,
    /// Reads the members that only this kind has. Problems are reported to the members; none if the settings cannot be used.
    pub(super) read: fn(&mut Members<'_>) -> Option<Box<dyn Settings>>,
}

/// All kinds that this server has, in the order of the documentation.
static KINDS: &[&ConnectionKind] = &[
    &http::KIND,
    &webhook::KIND,
    &postgres::KIND,
    &sqlite::KIND,
    #[cfg(feature = "mysql")]
    &super::mysql::KIND,
    #[cfg(feature = "nats")]
    &super::nats::KIND,
    #[cfg(feature = "redis")]
    &super::redis::KIND,
    #[cfg(feature = "mail")]
    &smtp::KIND,
    &model::OPENAI,
    &model::ANTHROPIC,
    #[cfg(feature = "mcp")]
    &super::mcp::KIND,
];

/// Kinds that need a feature of the server, and the feature: a server without it says so.
const FEATURES: &[(&str, &str)] =
    &[("mysql", "mysql"), ("nats", "nats"), ("redis", "redis"), ("smtp", "mail"), ("mcp", "mcp")];

/// The kind with this name; if there is none, what to write.
pub(super) fn find(name: &str) -> Result<&'static ConnectionKind, String> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return Ok(kind);
    }
    Err(match FEATURES.iter().find(|(kind, _)| *kind == name) {
        Some((_, feature)) => {
            format!("this server was built without `{name}`; build it with `--features {feature}`")
        }
        None => format!("`{name}` is not one of {}", names()),
    })
}

/// The names of all kinds, for messages.
pub(super) fn names() -> String {
    let names: Vec<_> = KINDS.iter().map(|kind| format!("`{}`", kind.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// What the configuration says about the other end of a connection.
pub(super) trait Settings {
    /// Fetches the secrets and makes what tasks use. It does not connect yet: a server starts while others are down. An error is a
    /// list of members, below the connection's own, and what is wrong with them.
    fn open(self: Box<Self>, environment: Environment<'_>) -> Result<Box<dyn Target>, Vec<(String, String)>>;

    /// Maximum time of an attempt, if neither the connection nor the step says it.
    fn timeout(&self) -> Duration {
        TIMEOUT
    }
}

/// What is at the other end of a connection. Tasks get the type behind it by [`Connection::target`](super::Connection::target).
pub trait Target: Any + fmt::Debug + Send + Sync {
    /// Kind of the connection, as the configuration has it.
    fn kind(&self) -> &'static str;

    /// Class of a step that writes through it, as lists show it: `keyed`, `keyed-in-window`, `reconcile`, `transactional` or
    /// `at-most-once`.
    fn class(&self) -> &'static str;

    /// What the other side can do about a repetition, as lists show it.
    fn summary(&self) -> String;

    /// Takes the secrets of the connection out of texts.
    fn redactor(&self) -> &Redactor;

    /// Why a step of this task with these arguments cannot use it, although its kind fits; none if it can.
    fn unfit(&self, _task: &str, _given: &[String]) -> Option<String> {
        None
    }

    /// Looks whether the other side can be used, for `semel connection check`.
    fn check<'a>(&'a self, check: TargetCheck<'a>) -> Checking<'a>;
}

/// A check that is under way.
pub type Checking<'a> = Pin<Box<dyn Future<Output = Checked> + Send + 'a>>;

/// How the other side is checked.
#[derive(Clone, Copy, Debug)]
pub struct TargetCheck<'a> {
    /// All connections of the server.
    pub connections: &'a Connections,
    /// Maximum time of the check.
    pub timeout: Duration,
    /// Whether what is missing there, and is ours to make, is made: `--install`.
    pub install: bool,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Whether tasks can use the connection.
    pub is_fine: bool,
    /// What was found, and how to mend what is wrong, without secrets.
    pub found: String,
}

impl Checked {
    /// The connection can be used.
    pub fn fine(found: impl Into<String>) -> Self {
        Self { is_fine: true, found: found.into() }
    }

    /// The connection cannot be used.
    pub fn wrong(found: impl Into<String>) -> Self {
        Self { is_fine: false, found: found.into() }
    }
}
