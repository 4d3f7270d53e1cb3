//! The server: REST, metrics, change stream and captures over HTTP/1.1.
//!
//! ```text
//! let bound = Bound::bind(Settings::of(&config.api)?, live, store).await?;
//! bound.run(shutdown).await;
//! ```

mod accept;
mod app;
mod condition;
mod extract;
mod guard;
mod live;
mod pcapng;
mod probe;
mod problem;
mod routes;
mod sample;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_store::{Store, UnixTime};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use guard::{Token, TokenError};
pub use live::{CaptureSpec, Captured, Direction, FlowQuery, Flows, Live, LiveError, TracePacket};
pub use probe::probe;
pub use tls::{Tls, TlsError};

/// The largest body of a request: a configuration of thousands of ports.
pub const BODY_LIMIT: usize = 4 << 20;

/// Where and for whom to serve.
#[derive(Debug)]
pub struct Settings {
    /// The address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The secret that requests must carry.
    pub token: Option<Token>,
    /// The certificate; plain HTTP without.
    pub tls: Option<Tls>,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is taken, or not of this machine, or not permitted.
    #[error(
        "the REST API cannot listen on {address}: stop what uses it (`ss -ltnp 'sport = {}'` names it), or set \
         api.listen to another address", address.port()
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address can be reached from elsewhere and nothing protects it.
    #[error(
        "api.listen = \"{address}\" can be reached from elsewhere: expected tls_cert, tls_key and token_file with it"
    )]
    Unprotected {
        /// The address.
        address: SocketAddr,
    },
    /// The token file is of no use.
    #[error("api.token_file {}: {source}", path.display())]
    Token {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: TokenError,
    },
    /// Certificate and key are of no use.
    #[error("api.tls_cert and api.tls_key: {0}")]
    Tls(#[from] TlsError),
}

impl Settings {
    /// On a loopback address, for whoever is on this machine.
    pub fn loopback(port: u16) -> Settings {
        Settings {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            token: None,
            tls: None,
        }
    }

    /// As the configuration says; reads the files that it names.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn of(api: &millrace_model::Api) -> Result<Settings, StartError> {
        let read = |path: &std::path::PathBuf| {
            Token::from_file(path).map_err(|source| StartError::Token {
                path: path.clone(),
                source,
            })
        };
        let token = api.token_file.as_ref().map(read).transpose()?;
        for (key, path) in [("api.token_file", &api.token_file), ("api.tls_key", &api.tls_key)] {
            if let Some(path) = path.as_deref().filter(|path| guard::is_open_to_all(path)) {
                let path = path.display();
                tracing::warn!(key, %path, "every user of this machine can read the secret: expected mode 0600 or 0640");
            }
        }
        let tls = match (&api.tls_cert, &api.tls_key) {
            (Some(cert), Some(key)) => Some(Tls::from_files(cert, key)?),
            _ => None,
        };
        Ok(Settings {
            listen: api.listen,
            token,
            tls,
        })
    }
}

/// A server that owns its address and does not serve yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    app: app::App,
    tls: Option<Tls>,
    close: watch::Sender<bool>,
}

impl Bound {
    /// Takes the address.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(settings: Settings, live: Arc<dyn Live>, store: Store) -> Result<Bound, StartError> {
        let Settings { listen, token, tls } = settings;
        if !listen.ip().is_loopback() && (token.is_none() || tls.is_none()) {
            return Err(StartError::Unprotected { address: listen });
        }
        let failed = |source| StartError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (close, closing) = watch::channel(false);
        Ok(Bound {
            listener,
            address,
            app: app::App::new(live, store, token, closing),
            tls,
            close,
        })
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The OpenAPI document as JSON.
    pub fn openapi(&self) -> serde_json::Value {
        serde_json::to_value(&*self.app.document).unwrap_or_default()
    }

    /// Serves until `shutdown` comes to its end, then lets open requests finish for up to a second.
    ///
    /// While it runs, it takes unconfirmed revisions back in time and samples the counters, once a second.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let Bound {
            listener,
            app,
            tls,
            close,
            ..
        } = self;
        let router = app::router(app.clone());
        let serve = accept::serve(listener, tls, router, app.clone());
        let housekeeping = every_second(app);
        tokio::pin!(serve, housekeeping);
        tokio::select! {
            () = &mut serve => {}
            () = &mut housekeeping => {}
            () = shutdown => {
                close.send_replace(true);
                serve.await;
            }
        }
    }
}

/// The handlers alone, without a token: for tests.
#[cfg(feature = "fake")]
pub(crate) fn service(live: Arc<dyn Live>, store: Store, closing: watch::Receiver<bool>) -> axum::Router {
    app::router(app::App::new(live, store, None, closing))
}

/// Never ends.
async fn every_second(app: app::App) {
    let mut clock = tokio::time::interval(sample::PERIOD);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        app.sample().await;
        let ticked = app
            .with_store(|store| store.tick(UnixTime::from(std::time::SystemTime::now())))
            .await;
        if let Ok(Err(error)) = ticked {
            tracing::error!(%error, "an unconfirmed revision could not be taken back");
        }
    }
}
