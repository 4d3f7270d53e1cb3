//! The accept loops: a bounded number of connections, in all and of each party, each with limits on how slowly it may
//! speak and listen.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::Limits;
use super::app::{self, App};
use super::overload;
use super::peer::Peer;
use super::places::{Places, Probes};
use super::progress::Progress;
use super::socket;
use super::tls::Tls;

/// How long open requests may take once the server closes.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A TCP listener, with the certificate to show there.
pub(super) struct Tcp(pub(super) TcpListener, pub(super) Option<Tls>);

/// Where connections come from.
pub(super) trait Listener {
    /// The next connection and who it is from.
    async fn accept(&self) -> io::Result<(Stream, Peer)>;
}

/// A connection before its first byte.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Tls),
}

impl Listener for Tcp {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let (stream, address) = self.0.accept().await?;
        // Small answers are not held back for larger ones.
        let _ = stream.set_nodelay(true);
        let stream = match &self.1 {
            None => Stream::Tcp(stream),
            Some(tls) => Stream::Tls(stream, tls.clone()),
        };
        Ok((stream, Peer::Address(address.ip().to_canonical())))
    }
}

impl Listener for socket::Listener {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let (stream, _) = self.listener().accept().await?;
        let peer = Peer::User(stream.peer_cred()?.uid());
        Ok((Stream::Unix(stream), peer))
    }
}

/// What every listener serves.
pub(super) struct Server {
    app: App,
    limits: Limits,
    /// The whole service.
    full: Router,
    /// `/health` and `/ready`.
    probe: Router,
}

impl Server {
    pub(super) fn new(app: &App, limits: Limits) -> Server {
        Server {
            app: app.clone(),
            limits,
            full: app::router(app.clone()),
            probe: overload::router(app.clone()),
        }
    }

    /// Serves until the server closes and the connections are done, or [`GRACE`] is over.
    pub(super) async fn serve<L: Listener>(&self, listener: L) {
        let limits = self.limits;
        let places = Places::new(limits.connections, limits.connections_of_peer);
        let mut probes = Probes::new(limits.probes);
        let mut connections = JoinSet::new();
        let closing = self.app.closing();
        tokio::pin!(closing);
        loop {
            let (stream, peer) = tokio::select! {
                () = &mut closing => break,
                accepted = next(&listener) => accepted,
            };
            while connections.try_join_next().is_some() {}
            let closing = self.app.closing();
            if let Some(place) = places.take(peer) {
                let router = self.full.clone();
                connections.spawn(async move {
                    let _held = place;
                    speak(stream, peer, router, limits, closing).await;
                });
            } else {
                tracing::debug!(%peer, "too many connections: one more gets /health and /ready only");
                let router = self.probe.clone();
                let probe = connections.spawn(async move {
                    let speak = speak(stream, peer, router, limits, closing);
                    let _ = tokio::time::timeout(limits.probe, speak).await;
                });
                probes.add(probe);
            }
        }
        drop(listener);
        let finish = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, finish).await;
    }
}

/// Returns the next connection. That the system has no place for one is no reason to end.
async fn next<L: Listener>(listener: &L) -> (Stream, Peer) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// HTTP/1.1 over one connection, until either side has enough.
async fn speak(
    stream: Stream,
    peer: Peer,
    router: Router,
    limits: Limits,
    closing: impl Future<Output = ()>,
) {
    match stream {
        Stream::Unix(stream) => {
            converse(Progress::new(stream, limits.write), peer, router, limits, closing).await;
        }
        Stream::Tcp(stream) => {
            converse(Progress::new(stream, limits.write), peer, router, limits, closing).await;
        }
        Stream::Tls(stream, tls) => {
            let handshake = tls.accept(Progress::new(stream, limits.write));
            match tokio::time::timeout(limits.head, handshake).await {
                Ok(Ok(stream)) => converse(stream, peer, router, limits, closing).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
            }
        }
    }
}

async fn converse<S>(stream: S, peer: Peer, router: Router, limits: Limits, closing: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(limits);
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection, closing);
    tokio::select! {
        // How a connection breaks is its client's affair.
        _ = connection.as_mut() => {}
        () = &mut closing => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
