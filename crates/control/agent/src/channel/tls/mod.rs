//! TLS with controllers (section 6.3.3): both sides show a certificate, and each must be signed by an authority that
//! the other trusts.
//!
//! The files are looked at again whenever a connection begins. If they have changed, they are read again, so that
//! certificates are renewed by replacing files; connections that are up keep what they agreed on. If what was put
//! there is of no use, connections go on to begin with what was read before, and the trouble is told.

mod fault;
mod name;
mod stream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use millrace_model::{self as model, Host};
use millrace_types::Duration;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(in crate::channel) use fault::TlsTrouble;
use fault::{TlsFault, explain};
use name::AnyName;
pub(in crate::channel) use stream::TlsStream;

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The files of a bridge, and what was read from them.
#[derive(Default)]
pub(in crate::channel) struct TlsFiles {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wanted: Option<Arc<model::Tls>>,
    held: Option<Held>,
}

struct Held {
    stamps: Stamps,
    ready: Ready,
}

/// What handshakes need.
#[derive(Clone)]
struct Ready {
    files: Arc<model::Tls>,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// What tells whether a file has changed: time and size of each; `None` of one that cannot be looked at.
type Stamps = [Option<(SystemTime, u64)>; 3];

impl TlsFiles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the files for connections that begin from now on, and reads them if they are others or have changed.
    ///
    /// # Errors
    /// [`TlsFault`]: what was read before, if the files are still the same, stays in use.
    pub(in crate::channel) fn set(&self, wanted: Option<&model::Tls>) -> Result<(), TlsFault> {
        let mut state = self.state();
        if state.wanted.as_deref() != wanted {
            *state = State {
                wanted: wanted.cloned().map(Arc::new),
                held: None,
            };
        }
        state.refresh()
    }

    /// What a handshake needs, now.
    fn ready(&self) -> Result<Ready, TlsFault> {
        let mut state = self.state();
        let outcome = state.refresh();
        match (&state.held, outcome) {
            (Some(held), Ok(())) => Ok(held.ready.clone()),
            (Some(held), Err(fault)) => {
                tracing::warn!(%fault, "TLS goes on with the files as they were");
                Ok(held.ready.clone())
            }
            (None, Err(fault)) => Err(fault),
            (None, Ok(())) => Err(TlsFault::NotConfigured),
        }
    }

    /// Shakes hands with a controller that the switch has connected to.
    ///
    /// # Errors
    /// What was wrong, and what to do.
    pub(in crate::channel) async fn connect(&self, tcp: TcpStream, host: &Host) -> io::Result<TlsStream> {
        let ready = self.ready()?;
        let name = match host {
            Host::Ip(ip) => ServerName::from(*ip),
            Host::Name(name) => {
                let name = DnsName::try_from(name.clone()).map_err(io::Error::other)?;
                ServerName::DnsName(name)
            }
        };
        let handshake = TlsConnector::from(ready.client).connect(name, tcp);
        let stream = in_time(handshake)
            .await
            .map_err(|error| explain(error, &ready.files))?;
        let (tcp, tls) = stream.into_inner();
        Ok(TlsStream::new(tcp, tls.into(), ready.files))
    }

    /// Shakes hands with a controller that has connected to the switch.
    ///
    /// # Errors
    /// What was wrong, and what to do.
    pub(in crate::channel) async fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        let ready = self.ready()?;
        let handshake = TlsAcceptor::from(ready.server).accept(tcp);
        let stream = in_time(handshake)
            .await
            .map_err(|error| explain(error, &ready.files))?;
        let (tcp, tls) = stream.into_inner();
        Ok(TlsStream::new(tcp, tls.into(), ready.files))
    }
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl State {
    /// Reads the files if they have changed since.
    fn refresh(&mut self) -> Result<(), TlsFault> {
        let Some(wanted) = &self.wanted else {
            return Ok(());
        };
        let stamps = [&wanted.private_key, &wanted.certificate, &wanted.ca_certificate].map(stamp);
        if self.held.as_ref().is_some_and(|held| held.stamps == stamps) {
            return Ok(());
        }
        let ready = load(wanted)?;
        if self.held.is_some() {
            tracing::info!(certificate = %wanted.certificate.display(), "TLS: changed files read");
        }
        self.held = Some(Held { stamps, ready });
        Ok(())
    }
}

fn stamp(path: &PathBuf) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn load(files: &Arc<model::Tls>) -> Result<Ready, TlsFault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates("certificate", &files.certificate)?;
    let key = private_key(&files.private_key, &provider)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in certificates("ca_certificate", &files.ca_certificate)?
        .into_iter()
        .enumerate()
    {
        roots.add(certificate).map_err(|source| TlsFault::Authority {
            path: files.ca_certificate.clone(),
            number: index + 1,
            source,
        })?;
    }
    let roots = Arc::new(roots);
    let unusable = |source| match source {
        rustls::Error::InconsistentKeys(_) => TlsFault::KeyMismatch {
            key: files.private_key.clone(),
            certificate: files.certificate.clone(),
        },
        source => TlsFault::Unusable {
            path: files.certificate.clone(),
            source,
        },
    };
    let no_verifier = |error: rustls::server::VerifierBuilderError| TlsFault::Unusable {
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
    Ok(Ready {
        files: Arc::clone(files),
        client: Arc::new(client),
        server: Arc::new(server),
    })
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsFault> {
    std::fs::read(path).map_err(|source| TlsFault::Unreadable {
        what,
        path: path.to_owned(),
        source,
    })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let no_pem = |source| TlsFault::NoPem {
        what,
        path: path.to_owned(),
        expected: "CERTIFICATE",
        source,
    };
    let found: Vec<_> = CertificateDer::pem_slice_iter(&read(what, path)?)
        .collect::<Result<_, _>>()
        .map_err(no_pem)?;
    if found.is_empty() {
        return Err(no_pem(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn private_key(path: &Path, provider: &CryptoProvider) -> Result<PrivateKeyDer<'static>, TlsFault> {
    let what = "private_key";
    let key = PrivateKeyDer::from_pem_slice(&read(what, path)?).map_err(|source| TlsFault::NoPem {
        what,
        path: path.to_owned(),
        expected: "PRIVATE KEY",
        source,
    })?;
    match provider.key_provider.load_private_key(key.clone_key()) {
        Ok(_) => Ok(key),
        Err(source) => Err(TlsFault::Unusable {
            path: path.to_owned(),
            source,
        }),
    }
}
