//! TLS to the database, by rustls and ring: how much of the server's certificate is checked, and what to do when it does
//! not pass.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::address::wrong;
use super::binding;
use crate::error::{Result, Source};

/// How connections are encrypted: `sslmode` and `sslrootcert`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TlsSettings {
    /// Connections are not encrypted.
    Disable,
    /// If the server can, with any certificate.
    Prefer,
    /// Encrypted, with any certificate.
    Require,
    /// With a certificate that is checked.
    Verify {
        /// How strictly the certificate is checked.
        check: Check,
        /// The authorities that may have signed it.
        roots: Roots,
    },
}

/// How much of a certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Who has signed it.
    Authority,
    /// That, and whether it is for the host of the URL.
    Full,
}

/// Trusted authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// Those of the machine.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

impl TlsSettings {
    pub(super) fn verified(check: Check, roots: Roots) -> Self {
        Self::Verify { check, roots }
    }

    /// As much of it as the driver knows.
    pub(super) fn driver_mode(&self) -> SslMode {
        match self {
            Self::Disable => SslMode::Disable,
            Self::Prefer => SslMode::Prefer,
            Self::Require | Self::Verify { .. } => SslMode::Require,
        }
    }

    /// Makes the TLS connector of these settings.
    pub(super) fn connector(&self) -> Result<Connector> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (names, authorities) = match self {
            Self::Verify { check, roots } => (*check == Check::Full, Some(roots.verifier(&provider)?)),
            _ => (false, None),
        };
        let verifier = Arc::new(Verifier { names, authorities, provider: provider.clone() });
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(wrong)?.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Connector { config: Arc::new(config) })
    }

    /// A failure to connect, with what to do about it.
    pub(super) fn explain(&self, error: Source) -> Source {
        let Some(postgres) = error.downcast_ref::<tokio_postgres::Error>() else { return error };
        let reason = std::error::Error::source(postgres);
        let hint = if let Some(tls) = reason.and_then(tls_error) {
            self.certificate_hint(tls)
        } else if postgres.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
            && matches!(self, Self::Disable)
        {
            "if the server takes encrypted connections only, set `sslmode=verify-full` and `sslrootcert`"
                .to_owned()
        } else if reason.is_some_and(|reason| reason.to_string() == "server does not support TLS") {
            "the server does not encrypt: switch TLS on there (`ssl = on` in postgresql.conf), or, on a network that you \
             trust, set `sslmode=disable`"
                .to_owned()
        } else {
            return error;
        };
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        Box::new(CannotConnect { told: format!("{postgres}{reason}; {hint}"), source: error })
    }

    fn certificate_hint(&self, error: &rustls::Error) -> String {
        use CertificateError as Bad;
        let rustls::Error::InvalidCertificate(bad) = error else {
            return "look into the log of the server".to_owned();
        };
        let given = match self {
            Self::Verify { roots: Roots::File(path), .. } => format!("`{}`", path.display()),
            _ => "the certificates of this machine".to_owned(),
        };
        match bad {
            Bad::UnknownIssuer | Bad::BadSignature => format!(
                "the certificate of the server is not signed by an authority in {given}: set `sslrootcert` to the \
                 certificate of the authority that has signed it"
            ),
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "the certificate of the server is for another name than the host in the URL: use a host that it names, or, \
                 if only you hold certificates of this authority, `sslmode=verify-ca`"
                    .to_owned()
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "the certificate of the server has expired: renew it there".to_owned()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the certificate of the server is not valid yet: look at the clocks of both machines".to_owned()
            }
            _ => "give the server another certificate: one with the name of its host, for servers, that is not an \
                  authority itself"
                .to_owned(),
        }
    }
}

/// A connection could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{told}")]
struct CannotConnect {
    told: String,
    source: Source,
}

/// The error of rustls that a failed handshake carries.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

impl Roots {
    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>> {
        let path = match self {
            Self::System => {
                let system = rustls_platform_verifier::Verifier::new(provider.clone());
                return Ok(Arc::new(system.map_err(wrong)?));
            }
            Self::File(path) => path,
        };
        let unusable =
            |why: String| wrong(format!("`sslrootcert`, {}: {why}; give a PEM file", path.display()));
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|e| unusable(e.to_string()))? {
            let certificate = certificate.map_err(|e| unusable(e.to_string()))?;
            roots.add(certificate).map_err(|e| unusable(e.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("there is no certificate in it".to_owned()));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Ok(verifier.map_err(wrong)?)
    }
}

/// Checks as much of a certificate as is asked for; in any case that the server has its key.
#[derive(Debug)]
struct Verifier {
    /// Whether the name counts.
    names: bool,
    /// None if any certificate will do.
    authorities: Option<Arc<dyn ServerCertVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        // The name is what is checked last: a certificate that fails there has passed everything before.
        match authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if !self.names =>
            {
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Encrypts connections. Clones share their sessions.
#[derive(Clone)]
pub(super) struct Connector {
    config: Arc<ClientConfig>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        // A local socket has no host, and no TLS either.
        Ok(ToHost { config: self.config.clone(), host: host.to_owned() })
    }
}

/// Encrypts one connection.
pub(super) struct ToHost {
    config: Arc<ClientConfig>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ToHost {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let host = ServerName::try_from(self.host).map_err(io::Error::other)?;
            let connector = tokio_rustls::TlsConnector::from(self.config);
            connector.connect(host, stream).await.map(|stream| Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted connection.
pub(super) struct Encrypted<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let hash = certificate.and_then(|certificate| binding::server_end_point(certificate));
        hash.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
