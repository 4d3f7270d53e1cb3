//! The server, from bind to shutdown.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use millrace_store::{Store, UnixTime};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::accept::{self, Server};
use super::app::App;
use super::journal::Journal;
use super::limits::Limits;
use super::live::Live;
use super::settings::{Settings, StartError};
use super::tls::Tls;
use super::{router, sample, socket};

/// A server that owns its socket and its address, and does not accept connections yet.
pub struct BoundServer {
    unix: socket::Listener,
    tcp: Option<(TcpListener, SocketAddr, Option<Tls>)>,
    app: App,
    limits: Limits,
    close: watch::Sender<bool>,
}

impl BoundServer {
    /// Binds the Unix socket and the TCP address.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(
        settings: Settings,
        live: Arc<dyn Live>,
        store: Store,
    ) -> Result<BoundServer, StartError> {
        let Settings {
            socket,
            group,
            tcp,
            limits,
        } = settings;
        let (mut token, mut bound) = (None, None);
        if let Some(tcp) = tcp {
            let address = tcp.listen;
            if !address.ip().to_canonical().is_loopback() && tcp.tls.is_none() {
                return Err(StartError::Unprotected { address });
            }
            let failed = |source| StartError::Listen { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            token = Some(tcp.token);
            bound = Some((listener, address, tcp.tls));
        }
        let unix = socket::Listener::bind(&socket, group)
            .map_err(|source| StartError::Socket { path: socket, source })?;
        let (close, closing) = watch::channel(false);
        Ok(BoundServer {
            unix,
            tcp: bound,
            app: App::new(live, store, token, router::document(), closing),
            limits,
            close,
        })
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> &Path {
        self.unix.path()
    }

    /// Returns the TCP address, with the port that the system chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, address, _)| *address)
    }

    /// Returns the OpenAPI document as JSON.
    pub fn openapi(&self) -> serde_json::Value {
        serde_json::to_value(&*self.app.document).unwrap_or_default()
    }

    /// Returns the journal to which the daemon publishes ports, links and neighbours.
    pub fn journal(&self) -> Journal {
        self.app.journal.clone()
    }

    /// Serves until `shutdown` completes; then gives open requests one second to finish.
    ///
    /// The server meanwhile rolls back revisions with an overdue confirmation, and samples the counters, once
    /// a second.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let BoundServer {
            unix,
            tcp,
            app,
            limits,
            close,
        } = self;
        let server = Server::new(&app, limits);
        let over_tcp = async {
            match tcp {
                Some((listener, _, tls)) => server.serve(accept::Tcp(listener, tls), "api.listen").await,
                None => app.closing().await,
            }
        };
        let serve = async { tokio::join!(server.serve(unix, "api.socket"), over_tcp) };
        let housekeeping = every_second(app.clone());
        let followed = app.follow_store();
        tokio::pin!(serve, housekeeping, followed);
        tokio::select! {
            _ = &mut serve => {}
            () = &mut housekeeping => {}
            () = &mut followed => {}
            () = shutdown => {
                close.send_replace(true);
                serve.await;
            }
        }
    }
}

/// Returns the handlers without listeners and without a token, for tests.
#[cfg(feature = "fake")]
pub(crate) fn service(live: Arc<dyn Live>, store: Store, closing: watch::Receiver<bool>) -> axum::Router {
    router::router(App::new(live, store, None, router::document(), closing))
}

/// Samples the counters and expires unconfirmed revisions, once a second. Never returns.
async fn every_second(app: App) {
    let mut clock = tokio::time::interval(sample::PERIOD);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        app.sample().await;
        app.publish_shortfalls().await;
        let ticked = app
            .with_store(|store| store.tick(UnixTime::from(std::time::SystemTime::now())))
            .await;
        if let Ok(Err(error)) = ticked {
            tracing::error!(%error, "an unconfirmed revision could not be rolled back");
        }
    }
}
