//! TLS by rustls and ring: no C library, and no provider that the process would have to choose first.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use rustls::CertificateError;
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

/// Why the certificate of a server was refused, if that is the cause of an error of an HTTP client. The client must use
/// rustls, as reqwest does with its feature `rustls`.
pub fn certificate_problem(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() {
            return Some(words(why));
        }
        // `source` of an I/O error skips the error that it was made of.
        let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match within {
            Some(within) => Some(within),
            None => error.source(),
        };
    }
    None
}

fn words(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its issuer is unknown".to_owned(),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another host name".to_owned()
        }
        CertificateError::BadSignature => "it is not signed by a trusted authority".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_certificate_is_found_within_an_io_error() {
        let refused = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, refused));
        assert_eq!(certificate_problem(&error).as_deref(), Some("its issuer is unknown"));
        assert_eq!(certificate_problem(&io::Error::other("connection refused")), None);
    }
}
