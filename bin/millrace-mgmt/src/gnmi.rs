//! Listeners of gNMI: HTTP/2 over TLS with client certificates, and over a Unix socket with the credentials of its peers.

mod clock;
mod service;
mod stream;
mod tree;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use millrace_api::client::Client as Rest;
use millrace_gnmi::proto::gnmi::g_nmi_server::GNmiServer;
use millrace_listener::{Admission, Connection, Limits, Source};
use millrace_yang::datastore::Client;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::codegen::Service as _;

use crate::settings::{Gnmi, Settings};
use crate::{access, socket};

use service::Service;
use tree::Tree;

/// The number of requests and subscriptions of a connection at a time.
const STREAMS_MAX: u32 = 64;
/// The size limit of a request's headers, in bytes.
const HEADERS_SIZE_MAX: u32 = 16 << 10;
/// The size limit of a message, in bytes: that of a request of REST.
const MESSAGE_SIZE_MAX: usize = 4 << 20;
/// The longest time until a client has sent its certificate.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Silent connections are asked if they live, and closed if not.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Everything that is served.
pub(crate) struct Listeners {
    unix: Option<UnixListener>,
    tcp: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
}

/// Reads the certificates that TCP needs.
pub(crate) fn tls(settings: &Gnmi) -> Result<Option<TlsAcceptor>> {
    let Some(files) = settings.tls()? else {
        return Ok(None);
    };
    let certificates = |path: &std::path::Path| -> Result<Vec<CertificateDer<'static>>> {
        let name = || path.display().to_string();
        let chain: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .with_context(name)?;
        anyhow::ensure!(
            !chain.is_empty(),
            "{}: expected a PEM file with certificates",
            name()
        );
        Ok(chain)
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(files.client_ca)? {
        roots
            .add(certificate)
            .with_context(|| files.client_ca.display().to_string())?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .context("gnmi.client_ca")?;
    let key = PrivateKeyDer::from_pem_file(files.key).with_context(|| files.key.display().to_string())?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(files.cert)?, key)
        .context("gnmi.tls_cert and gnmi.tls_key")?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

/// Binds the addresses and the socket.
pub(crate) fn bind(settings: &Gnmi, tls: Option<TlsAcceptor>) -> Result<Listeners> {
    let unix = match settings.socket.as_os_str().is_empty() {
        true => None,
        false => Some(socket::bind(&settings.socket)?),
    };
    let bind =
        |address: &SocketAddr| TcpListener::bind(address).with_context(|| format!("gnmi.listen {address}"));
    let tcp = settings.listen.iter().map(bind).collect::<Result<_>>()?;
    Ok(Listeners { unix, tcp, tls })
}

/// Starts the tasks that serve for the rest of the process's life.
pub(crate) fn serve(listeners: Listeners, settings: &Arc<Settings>, rest: &Rest) -> Result<()> {
    let tree = Tree::new(rest);
    if let Some(unix) = listeners.unix {
        unix.set_nonblocking(true)?;
        let unix = tokio::net::UnixListener::from_std(unix)?;
        tokio::spawn(over_unix(
            unix,
            Admission::new(Limits::LOCAL, "gnmi.socket"),
            Arc::clone(settings),
            tree.clone(),
        ));
    }
    for tcp in listeners.tcp {
        tcp.set_nonblocking(true)?;
        let tcp = tokio::net::TcpListener::from_std(tcp)?;
        let Some(tls) = listeners.tls.clone() else {
            continue;
        };
        let name = format!("gnmi.listen {}", tcp.local_addr()?);
        tokio::spawn(over_tcp(
            tcp,
            tls,
            Admission::new(Limits::NETWORK, name),
            Arc::clone(settings),
            tree.clone(),
        ));
    }
    Ok(())
}

async fn over_unix(
    listener: tokio::net::UnixListener,
    admission: Admission,
    settings: Arc<Settings>,
    tree: Tree,
) {
    loop {
        admission.ready().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (settings, tree) = (Arc::clone(&settings), tree.clone());
        let (counted, eviction) = admission.begin_task(Source::Local);
        tokio::spawn(eviction.bound(async move {
            let Ok(uid) = socket::peer(&stream) else { return };
            let found = tokio::task::spawn_blocking(move || access::of_user(uid, &settings.access)).await;
            let client = found.ok().flatten();
            if client.is_none() {
                tracing::warn!(uid, "gNMI: the user has no role");
            }
            connection(stream, counted, client, tree).await;
        }));
    }
}

async fn over_tcp(
    listener: tokio::net::TcpListener,
    tls: TlsAcceptor,
    admission: Admission,
    settings: Arc<Settings>,
    tree: Tree,
) {
    loop {
        admission.ready().await;
        let Ok((stream, address)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (settings, tree, tls) = (Arc::clone(&settings), tree.clone(), tls.clone());
        let (counted, eviction) = admission.begin_task(address.into());
        tokio::spawn(eviction.bound(async move {
            let _ = stream.set_nodelay(true);
            let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%address, %error, "gNMI: no TLS"),
                Err(_) => return tracing::debug!(%address, "gNMI: no TLS in time"),
            };
            let names = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(names);
            let names = names.unwrap_or_default();
            let client = access::of_names(&names, &settings.gnmi.clients);
            if client.is_none() {
                tracing::warn!(%address, ?names, "gNMI: gnmi.clients has none of the certificate's names");
            }
            connection(stream, counted, client, tree).await;
        }));
    }
}

/// Returns the common name and the DNS names of a certificate.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let common = parsed
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = common.map(str::to_owned).collect();
    if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
        for name in &alternative.value.general_names {
            if let x509_parser::extensions::GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            }
        }
    }
    names
}

/// Serves one connection. A client without a role is told so for each request, and stays pending; one with a role is
/// established by its first request.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    counted: Connection,
    client: Option<Client>,
    tree: Tree,
) {
    let has_role = client.is_some();
    let server = GNmiServer::new(Service::new(tree, client)).max_decoding_message_size(MESSAGE_SIZE_MAX);
    let service = service_fn(move |request| {
        let mut server = server.clone();
        let admitted = if has_role { counted.establish() } else { Ok(()) };
        async move {
            match admitted {
                Ok(()) => server.call(request).await,
                Err(error) => Ok(Status::resource_exhausted(error.to_string()).into_http()),
            }
        }
    });
    let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_SIZE_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "gNMI: a connection ended");
    }
}
