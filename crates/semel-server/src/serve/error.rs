//! Why a server does not start, or stops.

use std::net::SocketAddr;
use std::path::PathBuf;

use semel::error::Source;

/// Why a server does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is not acceptable.
    #[error("configuration: {0}")]
    Config(String),
    /// The server cannot listen on the address.
    #[error(
        "cannot listen on {address}: {source}; is another server running there? choose another with `--listen`"
    )]
    Listen {
        /// The address of the listener.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A certificate or its key cannot be used.
    #[error("TLS: {path}: {source}")]
    Tls {
        /// File of the certificate or key.
        path: PathBuf,
        /// What is wrong with it.
        source: Source,
    },
    /// A folder cannot be made.
    #[error("cannot write {path}: {source}")]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Logs or traces cannot be set up.
    #[error("logs: {0}")]
    Logs(#[source] Source),
    /// The store or the engine has failed.
    #[error(transparent)]
    Store(#[from] semel::Error),
}
