//! TLS for addresses that other machines can reach.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

/// Errors of a certificate and its key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or contains no PEM.
    #[error("{}: {source}: expected a PEM file with {expected}", path.display())]
    File {
        path: PathBuf,
        /// The expected content.
        expected: &'static str,
        source: pem::Error,
    },
    /// Certificate and key do not fit each other, or the algorithm is not supported.
    #[error("certificate and key cannot be used together: {0}")]
    Refused(#[from] rustls::Error),
}

impl Tls {
    /// Reads a certificate chain and a private key, both PEM.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn from_files(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        let chain_error = |source| TlsError::File {
            path: cert.to_owned(),
            expected: "a certificate chain, the server's certificate first",
            source,
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(chain_error)?;
        if chain.is_empty() {
            return Err(chain_error(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
            path: key.to_owned(),
            expected: "a private key",
            source,
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the TLS handshake.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> std::io::Result<TlsStream<S>> {
        self.0.accept(stream).await
    }
}
