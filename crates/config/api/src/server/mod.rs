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
mod overload;
mod pcapng;
mod peer;
mod places;
mod probe;
mod problem;
mod progress;
mod routes;
mod sample;
mod socket;
mod tls;
mod token;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrace_store::{Store, UnixTime};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use live::{CaptureSpec, Captured, Direction, FlowQuery, Flows, Live, LiveError, TracePacket};
pub use probe::probe;
pub use socket::SocketError;
pub use tls::{Tls, TlsError};
pub use token::{Token, TokenError};

/// The largest body of a request: a configuration of thousands of ports.
pub const BODY_LIMIT: usize = 4 << 20;

/// Where and for whom to serve.
#[derive(Debug)]
pub struct Settings {
    /// The Unix socket.
    pub socket: PathBuf,
    /// The TCP address, if one is served as well.
    pub tcp: Option<Tcp>,
    /// How many may ask, and how slowly.
    pub limits: Limits,
}

/// A TCP address to serve.
#[derive(Debug)]
pub struct Tcp {
    /// The address; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The secret that requests must carry.
    pub token: Token,
    /// The certificate; plain HTTP without.
    pub tls: Option<Tls>,
}

/// What clients may take of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of a listener at once.
    pub connections: usize,
    /// Connections of one user, IPv4 address or IPv6 /64 at once, on one listener.
    pub connections_of_peer: usize,
    /// Connections beyond these, which get `/health` and `/ready` only.
    pub probes: usize,
    /// Time for the TLS handshake, for the head of a request, and between two requests.
    pub head: Duration,
    /// Time for the body of a request.
    pub body: Duration,
    /// Time in which a client that has an answer to come must read some of it.
    pub write: Duration,
    /// Time for the whole of a connection that gets `/health` and `/ready` only.
    pub probe: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            connections_of_peer: 64,
            probes: 16,
            head: Duration::from_secs(10),
            body: Duration::from_secs(10),
            write: Duration::from_secs(10),
            probe: Duration::from_secs(5),
        }
    }
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The Unix socket cannot be served.
    #[error("the REST API cannot serve the socket {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: SocketError,
    },
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
    #[error("the token of the REST API, {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TokenError,
    },
    /// Certificate and key are of no use.
    #[error("api.tls_cert and api.tls_key: {0}")]
    Tls(#[from] TlsError),
}

impl Settings {
    /// Serves the Unix socket `path` alone.
    pub fn at(path: PathBuf) -> Settings {
        Settings {
            socket: path,
            tcp: None,
            limits: Limits::default(),
        }
    }

    /// As the configuration says; reads the files that it names, and generates the token into `state_dir` if a TCP
    /// address is served and no token is configured.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn of(api: &millrace_model::Api, state_dir: &Path) -> Result<Settings, StartError> {
        for (key, path) in [("api.token_file", &api.token_file), ("api.tls_key", &api.tls_key)] {
            if let Some(path) = path.as_deref().filter(|path| token::is_open_to_all(path)) {
                let path = path.display();
                tracing::warn!(key, %path, "every user of this machine can read the secret: expected mode 0600 or 0640");
            }
        }
        let tcp = api.listen.map(|listen| Tcp::of(listen, api, state_dir));
        Ok(Settings {
            tcp: tcp.transpose()?,
            ..Settings::at(PathBuf::from(api.socket.as_str()))
        })
    }
}

impl Tcp {
    fn of(listen: SocketAddr, api: &millrace_model::Api, state_dir: &Path) -> Result<Tcp, StartError> {
        let (token, path) = match &api.token_file {
            Some(path) => (Token::from_file(path), path.clone()),
            None => {
                let path = state_dir.join(crate::TOKEN_FILE);
                (Token::generated(&path), path)
            }
        };
        let token = token.map_err(|source| StartError::Token { path, source })?;
        let tls = match (&api.tls_cert, &api.tls_key) {
            (Some(cert), Some(key)) => Some(Tls::from_files(cert, key)?),
            _ => None,
        };
        Ok(Tcp { listen, token, tls })
    }
}

/// A server that owns its socket and its address and does not serve yet.
pub struct Bound {
    unix: socket::Listener,
    tcp: Option<(TcpListener, SocketAddr, Option<Tls>)>,
    app: app::App,
    limits: Limits,
    close: watch::Sender<bool>,
}

impl Bound {
    /// Takes the socket and the address.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn bind(settings: Settings, live: Arc<dyn Live>, store: Store) -> Result<Bound, StartError> {
        let Settings { socket, tcp, limits } = settings;
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
        let unix =
            socket::Listener::bind(&socket).map_err(|source| StartError::Socket { path: socket, source })?;
        let (close, closing) = watch::channel(false);
        Ok(Bound {
            unix,
            tcp: bound,
            app: app::App::new(live, store, token, closing),
            limits,
            close,
        })
    }

    /// Returns the Unix socket.
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

    /// Serves until `shutdown` comes to its end, then lets open requests finish for up to a second.
    ///
    /// While it runs, it takes unconfirmed revisions back in time and samples the counters, once a second.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) {
        let Bound {
            unix,
            tcp,
            app,
            limits,
            close,
        } = self;
        let server = accept::Server::new(&app, limits);
        let over_tcp = async {
            match tcp {
                Some((listener, _, tls)) => server.serve(accept::Tcp(listener, tls)).await,
                None => app.closing().await,
            }
        };
        let serve = async { tokio::join!(server.serve(unix), over_tcp) };
        let housekeeping = every_second(app.clone());
        tokio::pin!(serve, housekeeping);
        tokio::select! {
            _ = &mut serve => {}
            () = &mut housekeeping => {}
            () = shutdown => {
                close.send_replace(true);
                serve.await;
            }
        }
    }
}

/// Returns the handlers alone, without a token: for tests.
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
