//! TLS with controllers (OpenFlow 1.3.5, section 6.3.3): each side presents a certificate signed by an
//! authority that the other side trusts.
//!
//! Each new connection reads the files again if they changed, so certificates are renewed by replacing files.
//! Established connections are not affected. While new files cannot be used, new connections use the former
//! contents, and the log has the reason.

mod error;
mod stream;
mod validity;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use millrace_model::{self as model, Host};
use millrace_tls::AnyName;
use millrace_types::Duration;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(in crate::channel) use error::TlsProblem;
use error::{TlsFilesError, explain};
pub(in crate::channel) use stream::TlsStream;
use validity::Validity;

/// The maximum duration of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The TLS files of a bridge, and their latest usable contents.
#[derive(Default)]
pub(crate) struct TlsFiles {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Option<Arc<model::Tls>>,
    loaded: Option<Loaded>,
}

struct Loaded {
    stamps: Stamps,
    contents: TlsContents,
    /// The validity of the certificate of the bridge.
    validity: Option<Validity>,
}

/// A file of `tls` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFault {
    /// The key of the configuration: `private_key`, `certificate` or `ca_certificate`.
    pub key: &'static str,
    /// The file and the reason.
    pub reason: String,
}

/// Returns the faults of the files that TLS needs, each with its key: unreadable files, a key of another certificate,
/// certificates that are not valid now. Nothing is kept.
pub fn check_tls(files: &model::Tls) -> Vec<TlsFault> {
    let now = SystemTime::now();
    let fault = |error: TlsFilesError| TlsFault {
        key: error.key(files),
        reason: error.to_string(),
    };
    let provider = rustls::crypto::ring::default_provider();
    let each = [
        private_key(&files.private_key, &provider).err(),
        certificates("certificate", &files.certificate).err(),
        certificates("ca_certificate", &files.ca_certificate).err(),
    ];
    let mut faults: Vec<TlsFault> = each.into_iter().flatten().map(fault).collect();
    if faults.is_empty() {
        faults.extend(load(&Arc::new(files.clone())).err().map(fault));
    }
    if !faults.is_empty() {
        return faults;
    }
    for (key, path) in [
        ("certificate", &files.certificate),
        ("ca_certificate", &files.ca_certificate),
    ] {
        let invalid = invalid_certificates(path, now).into_iter();
        faults.extend(invalid.map(|reason| TlsFault { key, reason }));
    }
    faults
}

/// Returns the certificates in a PEM file that are not valid at `now`, each with its reason. A file that cannot be read has
/// none.
pub fn invalid_certificates(path: &Path, now: SystemTime) -> Vec<String> {
    let found = certificates("certificate", path).unwrap_or_default();
    let numbered = found.iter().enumerate();
    let fault = |(index, certificate): (usize, &CertificateDer<'_>)| {
        let fault = Validity::of(certificate)?.fault(now)?;
        Some(format!(
            "{}: certificate {} in it {fault}",
            path.display(),
            index + 1
        ))
    };
    numbered.filter_map(fault).collect()
}

/// The contents of the files, as handshakes need them.
#[derive(Clone)]
struct TlsContents {
    files: Arc<model::Tls>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Modification time and size of each file; `None` for a file whose metadata cannot be read.
type Stamps = [Option<(SystemTime, u64)>; 3];

impl TlsFiles {
    /// Sets the files for new connections, and reads them if they changed.
    ///
    /// # Errors
    /// [`TlsFilesError`]; if `wanted` is unchanged, the former contents of the files stay in use.
    pub(in crate::channel) fn set(&self, wanted: Option<&model::Tls>) -> Result<(), TlsFilesError> {
        let mut state = self.state.lock();
        if state.wanted.as_deref() != wanted {
            *state = State {
                wanted: wanted.cloned().map(Arc::new),
                loaded: None,
            };
        }
        state.refresh()
    }

    /// Returns the problem of the files, if there is one: new contents that cannot be used, or a certificate that is not
    /// valid now. Reads the files if they changed.
    pub(crate) fn problem(&self) -> Option<String> {
        let mut state = self.state.lock();
        let outcome = state.refresh();
        let loaded = state.loaded.as_ref();
        if let Err(error) = outcome {
            let meanwhile = match loaded {
                Some(_) => "new connections use the former contents of the files",
                None => "there are no new connections with TLS",
            };
            return Some(format!(
                "{error}; {meanwhile}. To fix it: replace the files; they are read again by themselves"
            ));
        }
        let loaded = loaded?;
        let fault = loaded.validity?.fault(SystemTime::now())?;
        let path = loaded.contents.files.certificate.display();
        Some(format!(
            "certificate {path} {fault}: controllers refuse it. To fix it: replace it; the file is read again by itself"
        ))
    }

    /// Returns the contents for a new handshake.
    fn contents(&self) -> Result<TlsContents, TlsFilesError> {
        let mut state = self.state.lock();
        let outcome = state.refresh();
        match (&state.loaded, outcome) {
            (Some(loaded), Ok(())) => Ok(loaded.contents.clone()),
            (Some(loaded), Err(error)) => {
                tracing::warn!(%error, "TLS continues with the former contents of the files");
                Ok(loaded.contents.clone())
            }
            (None, Err(error)) => Err(error),
            (None, Ok(())) => Err(TlsFilesError::NotConfigured),
        }
    }

    /// Performs the handshake as a client, with a controller that the switch connected to.
    ///
    /// # Errors
    /// The reason and the next step.
    pub(in crate::channel) async fn connect(&self, tcp: TcpStream, host: &Host) -> io::Result<TlsStream> {
        let contents = self.contents()?;
        let name = match host {
            Host::Ip(ip) => ServerName::from(*ip),
            Host::Name(name) => {
                let name = DnsName::try_from(name.clone()).map_err(io::Error::other)?;
                ServerName::DnsName(name)
            }
        };
        let handshake = TlsConnector::from(contents.client).connect(name, tcp);
        let stream = in_time(handshake)
            .await
            .map_err(|error| explain(error, &contents.files))?;
        let (tcp, tls) = stream.into_inner();
        Ok(TlsStream::new(tcp, tls.into(), contents.files))
    }

    /// Performs the handshake as a server, with a controller that connected to the switch.
    ///
    /// # Errors
    /// The reason and the next step.
    pub(in crate::channel) async fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        let contents = self.contents()?;
        let handshake = TlsAcceptor::from(contents.server).accept(tcp);
        let stream = in_time(handshake)
            .await
            .map_err(|error| explain(error, &contents.files))?;
        let (tcp, tls) = stream.into_inner();
        Ok(TlsStream::new(tcp, tls.into(), contents.files))
    }
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl State {
    /// Reads the files if they changed.
    fn refresh(&mut self) -> Result<(), TlsFilesError> {
        let Some(wanted) = &self.wanted else {
            return Ok(());
        };
        let stamps = [&wanted.private_key, &wanted.certificate, &wanted.ca_certificate].map(stamp);
        if self.loaded.as_ref().is_some_and(|loaded| loaded.stamps == stamps) {
            return Ok(());
        }
        let (contents, validity) = load(wanted)?;
        if self.loaded.is_some() {
            tracing::info!(certificate = %wanted.certificate.display(), "TLS: read the changed files");
        }
        self.loaded = Some(Loaded {
            stamps,
            contents,
            validity,
        });
        Ok(())
    }
}

fn stamp(path: &PathBuf) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// Reads the files. Returns their contents, and the validity of the certificate of the bridge.
fn load(files: &Arc<model::Tls>) -> Result<(TlsContents, Option<Validity>), TlsFilesError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates("certificate", &files.certificate)?;
    let validity = chain.first().and_then(Validity::of);
    let key = private_key(&files.private_key, &provider)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates("ca_certificate", &files.ca_certificate)?
        .into_iter()
        .enumerate()
    {
        roots
            .add(certificate)
            .map_err(|source| TlsFilesError::Authority {
                path: files.ca_certificate.clone(),
                number: index + 1,
                source,
            })?;
    }
    let roots = Arc::new(roots);
    let unusable = |source| match source {
        rustls::Error::InconsistentKeys(_) => TlsFilesError::KeyMismatch {
            key: files.private_key.clone(),
            certificate: files.certificate.clone(),
        },
        source => TlsFilesError::Unusable {
            path: files.certificate.clone(),
            source,
        },
    };
    let no_verifier = |error: rustls::server::VerifierBuilderError| TlsFilesError::Unusable {
        path: files.ca_certificate.clone(),
        source: rustls::Error::General(error.to_string()),
    };
    let of_clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(no_verifier)?;
    let of_servers = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(no_verifier)?;
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(of_clients)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unusable)?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?;
    let client = if files.check_names {
        client.with_webpki_verifier(of_servers)
    } else {
        client
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName::of(of_servers)))
    };
    let client = client.with_client_auth_cert(chain, key).map_err(unusable)?;
    let contents = TlsContents {
        files: Arc::clone(files),
        client: Arc::new(client),
        server: Arc::new(server),
    };
    Ok((contents, validity))
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    std::fs::read(path).map_err(|source| TlsFilesError::Unreadable {
        key,
        path: path.to_owned(),
        source,
    })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let no_pem = |source| TlsFilesError::NoPem {
        key,
        path: path.to_owned(),
        expected: "CERTIFICATE",
        source,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(key, path)?)
        .collect::<Result<_, _>>()
        .map_err(no_pem)?;
    if found.is_empty() {
        return Err(no_pem(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn private_key(path: &Path, provider: &CryptoProvider) -> Result<PrivateKeyDer<'static>, TlsFilesError> {
    let key = "private_key";
    let private =
        PrivateKeyDer::from_pem_slice(&read(key, path)?).map_err(|source| TlsFilesError::NoPem {
            key,
            path: path.to_owned(),
            expected: "PRIVATE KEY",
            source,
        })?;
    match provider.key_provider.load_private_key(private.clone_key()) {
        Ok(_) => Ok(private),
        Err(source) => Err(TlsFilesError::Unusable {
            path: path.to_owned(),
            source,
        }),
    }
}
