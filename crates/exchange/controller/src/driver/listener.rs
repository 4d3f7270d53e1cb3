//! Listeners for switches, and connections to switches that listen.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use millrace_listener::{Admission, Limits, Source};
use millrace_types::Duration;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::private_socket::bind_private;
use super::session::{Peer, Session};
use super::tls::{TlsContents, TlsFiles, TlsFilesError};
use super::{Stream, Target, task};
use crate::connection::{CloseReason, Settings};

/// The maximum number of sessions that wait for [`Listener::accept`].
const READY_LEN: usize = 16;

/// The limits of a listener. Many switches may share an address, and all of them connect when the controller starts.
const LIMITS: Limits = Limits {
    established: 1024,
    established_of_source: 1024,
    pending: 256,
    pending_of_source: 64,
};

/// The configuration of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The address to listen on or to connect to.
    pub target: Target,
    /// The certificate files of the controller; required for [`Target::Tls`].
    pub tls: Option<TlsFiles>,
    /// Time-outs and limits of each connection.
    pub settings: Settings,
    /// Limits on the connections of switches. A connection is pending until [`Session::establish`].
    pub limits: Limits,
}

impl Config {
    /// Returns a configuration with the default limits.
    pub fn new(target: Target) -> Config {
        Config {
            target,
            tls: None,
            settings: Settings::default(),
            limits: LIMITS,
        }
    }

    fn tls(&self) -> io::Result<Option<TlsContents>> {
        match (&self.target, &self.tls) {
            (Target::Tls(_), Some(files)) => files.load().map(Some).map_err(io::Error::other),
            (Target::Tls(_), None) => Err(io::Error::other(TlsFilesError::Missing)),
            (Target::Tcp(_) | Target::Unix(_), _) => Ok(None),
        }
    }
}

/// A listener that performs the handshakes of several switches at the same time. Dropping the listener ends
/// the handshakes but not the sessions.
#[derive(Debug)]
pub struct Listener {
    address: Option<SocketAddr>,
    sessions: mpsc::Receiver<Session>,
    _task: JoinSet<()>,
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Binds a listener in the current runtime.
///
/// # Errors
/// The address is in use or not local, or the TLS files cannot be used.
pub async fn listen(config: Config) -> io::Result<Listener> {
    let tls = config.tls()?;
    let acceptor = match &config.target {
        Target::Tcp(address) | Target::Tls(address) => Acceptor::Tcp(TcpListener::bind(address).await?),
        Target::Unix(path) => {
            // Only the owner may connect to the socket, because any process that can connect can pose as a
            // switch.
            let listener = bind_private(path)?;
            listener.set_nonblocking(true)?;
            Acceptor::Unix(UnixListener::from_std(listener)?)
        }
    };
    let address = match &acceptor {
        Acceptor::Tcp(listener) => Some(listener.local_addr()?),
        Acceptor::Unix(_) => None,
    };
    let (sender, sessions) = mpsc::channel(READY_LEN);
    let mut task = JoinSet::new();
    task.spawn(accept_all(acceptor, tls, config, sender));
    Ok(Listener {
        address,
        sessions,
        _task: task,
    })
}

impl Listener {
    /// Returns the bound address, with the port that the kernel chose; `None` for a Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits for the next switch with a complete handshake, and returns its session.
    pub async fn accept(&mut self) -> Option<Session> {
        self.sessions.recv().await
    }
}

async fn accept_all(
    acceptor: Acceptor,
    tls: Option<TlsContents>,
    config: Config,
    sessions: mpsc::Sender<Session>,
) {
    let admission = Admission::new(config.limits, config.target.to_string());
    let mut handshakes = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept_one(&acceptor) => accepted,
            Some(_) = handshakes.join_next() => continue,
            () = sessions.closed() => return,
        };
        let (stream, source, peer) = match accepted {
            Ok(accepted) => accepted,
            // An error such as EMFILE is temporary; an immediate retry would use a whole core.
            Err(error) => {
                tracing::warn!(target = %config.target, %error, "cannot accept a switch");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        admission.ready().await;
        let (accepted, mut eviction) = admission.begin_task(source);
        let (tls, settings, sessions) = (tls.clone(), config.settings, sessions.clone());
        handshakes.spawn(async move {
            let address = peer.address.clone();
            let secure = async {
                match (stream, tls) {
                    (Accepted::Tcp(tcp), Some(tls)) => accept_tls(tcp, &tls, peer, settings).await,
                    (Accepted::Tcp(tcp), None) => Ok((Box::new(tcp) as Stream, peer)),
                    (Accepted::Unix(unix), _) => Ok((Box::new(unix) as Stream, peer)),
                }
            };
            let secured = tokio::select! {
                secured = secure => secured,
                // The admission logs the number of these connections.
                () = eviction.evicted() => return,
            };
            let session = match secured {
                Ok((stream, peer)) => task::start(stream, peer, settings, Some((accepted, eviction)))
                    .await
                    .map_err(|reason| reason.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match session {
                // If the listener was dropped, the send fails, and the session ends because its handle is
                // dropped.
                Ok(session) => drop(sessions.send(session).await),
                Err(reason) => tracing::warn!(%address, %reason, "switch refused"),
            }
        });
    }
}

enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

async fn accept_one(acceptor: &Acceptor) -> io::Result<(Accepted, Source, Peer)> {
    match acceptor {
        Acceptor::Tcp(listener) => {
            let (tcp, address) = listener.accept().await?;
            // Without TCP_NODELAY, small messages arrive late, but they arrive.
            let _late = tcp.set_nodelay(true);
            let peer = Peer {
                address: address.to_string(),
                certificate: None,
            };
            Ok((Accepted::Tcp(tcp), address.into(), peer))
        }
        Acceptor::Unix(listener) => {
            let (unix, _) = listener.accept().await?;
            Ok((Accepted::Unix(unix), Source::Local, local()))
        }
    }
}

fn local() -> Peer {
    Peer {
        address: "local".to_owned(),
        certificate: None,
    }
}

async fn accept_tls(
    tcp: TcpStream,
    tls: &TlsContents,
    peer: Peer,
    settings: Settings,
) -> io::Result<(Stream, Peer)> {
    let handshake = TlsAcceptor::from(Arc::clone(&tls.server)).accept(tcp);
    let stream = in_time(handshake, settings).await?;
    let certificate = first_certificate(stream.get_ref().1.peer_certificates());
    Ok((Box::new(stream), Peer { certificate, ..peer }))
}

fn first_certificate(chain: Option<&[rustls::pki_types::CertificateDer<'static>]>) -> Option<Vec<u8>> {
    chain?.first().map(|certificate| certificate.to_vec())
}

async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>, settings: Settings) -> io::Result<T> {
    tokio::time::timeout(settings.handshake_timeout, handshake)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Connects to a switch that listens. Over TLS, the certificate must contain the address of the switch.
///
/// # Errors
/// The connection failed, or the handshake.
pub async fn connect(config: &Config) -> io::Result<Session> {
    let tls = config.tls()?;
    let settings = config.settings;
    let (stream, peer) = match &config.target {
        Target::Tcp(address) | Target::Tls(address) => {
            let tcp = in_time(TcpStream::connect(address), settings).await?;
            let _late = tcp.set_nodelay(true);
            let peer = Peer {
                address: address.to_string(),
                certificate: None,
            };
            match tls {
                Some(tls) => {
                    let name = ServerName::from(address.ip());
                    let handshake = TlsConnector::from(tls.client).connect(name, tcp);
                    let stream = in_time(handshake, settings).await?;
                    let certificate = first_certificate(stream.get_ref().1.peer_certificates());
                    (Box::new(stream) as Stream, Peer { certificate, ..peer })
                }
                None => (Box::new(tcp) as Stream, peer),
            }
        }
        Target::Unix(path) => {
            let unix = in_time(UnixStream::connect(path), settings).await?;
            (Box::new(unix) as Stream, local())
        }
    };
    let started = task::start(stream, peer, settings, None).await;
    started.map_err(|reason: CloseReason| io::Error::other(reason))
}
