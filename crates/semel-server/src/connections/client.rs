//! HTTP clients of connections: rustls, no proxy, no redirects of their own, no cookies.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::names::CheckedNames;

/// Maximum time to connect. What is not connected by then has certainly not been called.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an idle line is kept: shorter than servers keep theirs, so that a request rarely meets one that is just being closed.
const IDLE: Duration = Duration::from_secs(15);

/// How a client is built.
#[derive(Debug, Default)]
pub(super) struct ClientOptions {
    /// Certificates of a private authority, beside those of the machine.
    pub(super) ca_file: Option<PathBuf>,
    /// Resolver that refuses addresses.
    pub(super) names: Option<CheckedNames>,
}

/// Builds a client.
pub(super) fn client(options: ClientOptions) -> Result<reqwest::Client, String> {
    // Ring needs no C library. An error means that a provider is already installed, which is fine.
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("semel/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .no_proxy()
        .referer(false)
        .redirect(reqwest::redirect::Policy::none())
        // Whether a request is repeated is decided by the class of its step.
        .retry(reqwest::retry::never());
    if let Some(path) = &options.ca_file {
        builder = builder.tls_certs_merge(certificates(path)?);
    }
    if let Some(names) = options.names {
        builder = builder.dns_resolver(Arc::new(names));
    }
    builder.build().map_err(|error| format!("HTTP cannot be set up: {error}"))
}

fn certificates(path: &Path) -> Result<Vec<reqwest::Certificate>, String> {
    let pem = std::fs::read(path)
        .map_err(|error| format!("the file {} cannot be read: {error}", path.display()))?;
    let certificates = reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default();
    match certificates.is_empty() {
        true => Err(format!("the file {} has no certificate; give PEM", path.display())),
        false => Ok(certificates),
    }
}
