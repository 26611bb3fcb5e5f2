//! TLS: a certificate and its key from PEM files.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;

use super::Error;
use crate::config::Tls;

/// Makes what shakes hands with clients. HTTP/2 is offered before HTTP/1.1.
pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(&tls.cert)
        .and_then(Iterator::collect)
        .map_err(|error| refuse(&tls.cert, error))?;
    if chain.is_empty() {
        return Err(refuse(&tls.cert, "the file has no certificate in PEM format"));
    }
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| refuse(&tls.key, error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| refuse(&tls.key, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn refuse(path: &Path, source: impl Into<semel::error::Source>) -> Error {
    Error::Tls { path: path.to_owned(), source: source.into() }
}
