//! Why the demo cannot go on.

use std::io;

/// Why the demo cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a folder or a process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What came of it.
        source: io::Error,
    },
    /// A process of the demo does not do its part.
    #[error("{0}")]
    Process(String),
    /// The store or the engine.
    #[error(transparent)]
    Store(#[from] semel::Error),
    /// The shop's database.
    #[error("the shop: {0}")]
    Shop(String),
    /// Somebody pressed Ctrl-C.
    #[error("stopped")]
    Stopped,
}

impl Error {
    /// Says what was tried.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

impl From<semel::Fail> for Error {
    fn from(fail: semel::Fail) -> Self {
        Self::Shop(fail.to_string())
    }
}
