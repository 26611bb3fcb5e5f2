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
    /// The address cannot be had.
    #[error(
        "cannot listen on {address}: {source}; is another server running there? choose another with `--listen`"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A certificate or its key cannot be used.
    #[error("TLS: {path}: {source}")]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Source,
    },
    /// A folder cannot be made.
    #[error("cannot write {path}: {source}")]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Logs or traces cannot be set up.
    #[error("logs: {0}")]
    Logs(#[source] Source),
    /// The store, or the engine on it.
    #[error(transparent)]
    Store(#[from] semel::Error),
}
