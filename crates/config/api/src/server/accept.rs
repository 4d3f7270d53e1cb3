//! The accept loops: a bounded number of connections, in total and for each client, each with time limits for reads
//! and writes.
//!
//! A connection is pending, and may be closed for a newer one, until the [guard](super::guard) has authorized one of its
//! requests.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use millrace_listener::{Admission, Connection, WriteTimeout, http};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::app::App;
use super::limits::Limits;
use super::peer::Peer;
use super::tls::Tls;
use super::{router, socket};

/// The time that open requests have to finish after the server starts to close.
const GRACE: Duration = Duration::from_secs(1);
/// The pause after a failed accept, for example when the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A TCP listener, and the certificate that it presents.
pub(super) struct Tcp(pub(super) TcpListener, pub(super) Option<Tls>);

/// A source of connections.
pub(super) trait Listener {
    /// Returns the next connection and its peer.
    async fn accept(&self) -> io::Result<(Stream, Peer)>;
}

/// A connection from which nothing has been read yet.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Tls),
}

impl Listener for Tcp {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let (stream, address) = self.0.accept().await?;
        // Small responses are sent at once (TCP_NODELAY), not held back until more data follows.
        let _ = stream.set_nodelay(true);
        let _ = keep_alive(&stream);
        let stream = match &self.1 {
            None => Stream::Tcp(stream),
            Some(tls) => Stream::Tls(stream, tls.clone()),
        };
        Ok((stream, Peer::Address(address.ip().to_canonical())))
    }
}

/// Sets TCP keepalive, so that a connection ends within a minute after its peer has vanished. Without
/// keepalive, a connection without writes would stay, such as a capture that selects no packet.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

impl Listener for socket::Listener {
    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        let (stream, _) = self.listener().accept().await?;
        let peer = Peer::User(stream.peer_cred()?.uid());
        Ok((Stream::Unix(stream), peer))
    }
}

/// The services that every listener offers.
pub(super) struct Server {
    app: App,
    limits: Limits,
    router: Router,
}

impl Server {
    pub(super) fn new(app: &App, limits: Limits) -> Server {
        Server {
            app: app.clone(),
            limits,
            router: router::router(app.clone()),
        }
    }

    /// Accepts and serves connections until the server closes; then waits until they are done, for [`GRACE`] at most.
    /// `name` is the listener's in the log.
    pub(super) async fn serve<L: Listener>(&self, listener: L, name: &str) {
        let limits = self.limits;
        let admission = Admission::new(limits.of_connections(), name);
        let mut connections = JoinSet::new();
        let closing = self.app.closing();
        tokio::pin!(closing);
        loop {
            let (stream, peer) = tokio::select! {
                () = &mut closing => break,
                accepted = accept_next(&listener) => accepted,
            };
            while connections.try_join_next().is_some() {}
            admission.ready().await;
            let (connection, eviction) = admission.begin_task(peer.source());
            let client = Client { peer, connection };
            let serving = serve_connection(stream, client, self.router.clone(), limits, self.app.closing());
            connections.spawn(eviction.bound(serving));
        }
        drop(listener);
        let finish = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GRACE, finish).await;
    }
}

/// The client of a connection, for the requests that it sends.
struct Client {
    peer: Peer,
    connection: Connection,
}

/// Returns the next connection. A failed accept, for example for lack of file descriptors, is logged and tried again.
async fn accept_next<L: Listener>(listener: &L) -> (Stream, Peer) {
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

/// Serves HTTP/1.1 on one connection until either side closes it.
async fn serve_connection(
    stream: Stream,
    client: Client,
    router: Router,
    limits: Limits,
    closing: impl Future<Output = ()>,
) {
    match stream {
        Stream::Unix(stream) => {
            let stream = WriteTimeout::new(stream, limits.write);
            serve_http(stream, client, router, limits, closing).await;
        }
        Stream::Tcp(stream) => {
            let stream = WriteTimeout::new(stream, limits.write);
            serve_http(stream, client, router, limits, closing).await;
        }
        Stream::Tls(stream, tls) => {
            let peer = client.peer;
            let handshake = tls.accept(WriteTimeout::new(stream, limits.write));
            match tokio::time::timeout(limits.head, handshake).await {
                Ok(Ok(stream)) => serve_http(stream, client, router, limits, closing).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
            }
        }
    }
}

async fn serve_http<S>(
    stream: S,
    client: Client,
    router: Router,
    limits: Limits,
    closing: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let Client { peer, connection } = client;
    http::serve(
        stream,
        connection,
        limits.head,
        closing,
        move |mut request: Request<Incoming>| {
            let extensions = request.extensions_mut();
            extensions.insert(peer);
            extensions.insert(limits);
            service.call(request)
        },
    )
    .await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_vanished_peer_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _client = TcpStream::connect(address).await.unwrap();
        let (Stream::Tcp(stream), _) = Tcp(listener, None).accept().await.unwrap() else {
            panic!("expected TCP without TLS");
        };
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), Duration::from_secs(30));
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), Duration::from_secs(10));
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 3);
    }
}
