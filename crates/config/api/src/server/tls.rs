//! TLS for addresses that can be reached from elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A certificate with its key, ready to serve.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

/// Why certificate and key are of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM.
    #[error("{}: {source}: expected a PEM file with {expected}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// They do not fit each other, or the algorithm is not supported.
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
            expected: "a certificate chain, that of the server first",
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

    /// Returns the handshake.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> std::io::Result<TlsStream<S>> {
        self.0.accept(stream).await
    }
}
