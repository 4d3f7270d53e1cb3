//! TLS with switches (OpenFlow 1.3.5, section 6.3.3). Each side presents a certificate that is signed by
//! an authority that the other side trusts. The caller decides which certificate is valid for which datapath id.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

/// The PEM files with the controller's key and certificate, and the trusted authorities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    pub private_key: PathBuf,
    /// The certificate, and the intermediate certificates up to its authority.
    pub certificate: PathBuf,
    /// The authorities that sign the certificates of switches.
    pub ca_certificate: PathBuf,
}

/// The reason why the files cannot be used.
#[derive(Debug, Error)]
pub enum TlsFilesError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A file has no PEM section of the expected kind.
    #[error("{} is no PEM file with {expected}: {source}", .path.display())]
    NoPem {
        path: PathBuf,
        /// The label of the expected PEM section.
        expected: &'static str,
        source: pem::Error,
    },
    /// The contents of the files do not match each other, or are not supported.
    #[error("{} cannot be used: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: String },
    /// A TLS target has no files.
    #[error("a TLS target needs private_key, certificate and ca_certificate")]
    Missing,
}

/// The contents of the files, in the form that handshakes need.
#[derive(Clone)]
pub(super) struct TlsContents {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

impl TlsFiles {
    /// Reads the files.
    pub(super) fn load(&self) -> Result<TlsContents, TlsFilesError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = certificates(&self.certificate)?;
        let no_key = |source| TlsFilesError::NoPem {
            path: self.private_key.clone(),
            expected: "PRIVATE KEY",
            source,
        };
        let key = PrivateKeyDer::from_pem_slice(&read(&self.private_key)?).map_err(no_key)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_certificate)? {
            let added = roots.add(certificate);
            added.map_err(|error| unusable(&self.ca_certificate, &error))?;
        }
        let roots = Arc::new(roots);
        let of_clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| unusable(&self.ca_certificate, &error))?;
        let own = |error: rustls::Error| unusable(&self.certificate, &error);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(own)?
            .with_client_cert_verifier(of_clients)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(own)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(own)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(own)?;
        Ok(TlsContents {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }
}

fn unusable(path: &Path, error: &dyn core::fmt::Display) -> TlsFilesError {
    TlsFilesError::Unusable {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    std::fs::read(path).map_err(|source| TlsFilesError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let no_pem = |source| TlsFilesError::NoPem {
        path: path.to_owned(),
        expected: "CERTIFICATE",
        source,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(no_pem)?;
    if found.is_empty() {
        return Err(no_pem(pem::Error::NoItemsFound));
    }
    Ok(found)
}
