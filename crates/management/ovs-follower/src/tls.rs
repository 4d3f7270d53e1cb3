//! TLS with the server. Both sides present a certificate. The files are read for each connection, so that certificates are renewed
//! by replacing files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use millrace_model::{Host, Tls};
use millrace_tls::AnyName;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Performs the handshake.
///
/// # Errors
/// The file or the reason of the peer.
pub(crate) async fn handshake(tcp: TcpStream, host: &Host, files: &Tls) -> io::Result<TlsStream<TcpStream>> {
    let name = match host {
        Host::Ip(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::DnsName(DnsName::try_from(name.clone()).map_err(io::Error::other)?),
    };
    let owned = files.clone();
    let config = tokio::task::spawn_blocking(move || config(&owned)).await??;
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await
}

fn config(files: &Tls) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.private_key).map_err(|error| said(&files.private_key, error))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca_certificate)? {
        roots
            .add(certificate)
            .map_err(|error| said(&files.ca_certificate, error))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| said(&files.ca_certificate, error))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match files.check_names {
        true => builder.with_webpki_verifier(verifier),
        false => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName::of(verifier))),
    };
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| said(&files.private_key, error))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| said(path, error))?
        .collect();
    let found = found.map_err(|error| said(path, error))?;
    match found.is_empty() {
        true => Err(said(path, "no certificate: expected PEM")),
        false => Ok(found),
    }
}

fn said(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
