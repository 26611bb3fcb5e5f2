//! Why the demo cannot go on.

use std::io;

/// Why the demo cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file, a folder or a process.
    #[error("{what}: {source}")]
    Io {
        /// What the demo tried to do.
        what: String,
        /// Result of the demo.
        source: io::Error,
    },
    /// A process of the demo has failed.
    #[error("{0}")]
    Process(String),
    /// The store or the engine.
    #[error(transparent)]
    Store(#[from] semel::Error),
    /// The shop's own database failed.
    #[error("the shop: {0}")]
    Shop(String),
    /// The user pressed Ctrl-C.
    #[error("stopped")]
    Stopped,
}

impl DemoError {
    /// Says what was tried.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<semel::Fail> for DemoError {
    fn from(fail: semel::Fail) -> Self {
        Self::Shop(fail.to_string())
    }
}
