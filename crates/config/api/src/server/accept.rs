//! The accept loop: a bounded number of connections, each with a limit on how slowly it may speak.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::app::App;
use super::tls::Tls;

/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take for the header of a request, and for the TLS handshake.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open requests may take once the server closes.
const GRACE: Duration = Duration::from_secs(1);
/// How long to wait when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the server closes and the connections are done, or [`GRACE`] is over.
pub(super) async fn serve(listener: TcpListener, tls: Option<Tls>, router: Router, app: App) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let closing = app.closing();
    tokio::pin!(closing);
    loop {
        let stream = tokio::select! {
            () = &mut closing => break,
            stream = accept(&listener) => stream,
        };
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(
                connections = CONNECTIONS_MAX,
                "too many connections: one more is closed"
            );
            continue;
        };
        let (router, tls, closing) = (router.clone(), tls.clone(), app.closing());
        connections.spawn(async move {
            let _held = place;
            match tls {
                None => speak(stream, router, closing).await,
                Some(tls) => match tokio::time::timeout(HEADER_TIMEOUT, tls.accept(stream)).await {
                    Ok(Ok(stream)) => speak(stream, router, closing).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                },
            }
        });
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(GRACE, finish).await;
}

/// The next connection. That the system has no place for one is no reason to end.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small answers are not held back for larger ones.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// HTTP/1.1 over one connection, until either side has enough.
async fn speak<S>(stream: S, router: Router, closing: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
