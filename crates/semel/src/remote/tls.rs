//! TLS by rustls and ring: no C library, and no provider that the process would have to choose first.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::error::{Error, Result};

/// What the client is built with. `secure` is whether it will be used: a machine without certificates of its own can
/// still speak plain HTTP.
pub(super) fn config(secure: bool, ca: Option<&[u8]>) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let open = |e: rustls::Error| Error::Open { what: "TLS".to_owned(), source: e.into() };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(open)?;
    let builder = match ca {
        Some(pem) => builder.with_root_certificates(roots(pem)?),
        None if secure => builder.with_platform_verifier().map_err(open)?,
        None => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

fn roots(pem: &[u8]) -> Result<RootCertStore> {
    let wrong = |why: String| Error::Validation(format!("the certificates are not usable: {why}; give PEM"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is none".to_owned()));
    }
    Ok(roots)
}
