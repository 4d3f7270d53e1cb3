//! The daemon's life: start, reload, drain, end.
//!
//! ```text
//!  start ── lock, identity, grants, sockets ──> READY=1 ── SIGHUP: load the file again ──┐
//!                                                  ^                                     │
//!                                                  └─────────────────────────────────────┘
//!                SIGTERM, SIGINT ──> draining: no further transfer ── the last one ends, or the time ──> end
//!                again ──> end at once; received data are kept
//! ```

use crate::audit::Audit;
use crate::config::{Config, ConfigError};
use crate::grants::Grants;
use crate::http;
use crate::metrics::{Daemon, render, status};
use millrace_courier::identity::{Identity, IdentityError};
use millrace_courier::{Event, ReceiveOptions, Session, SessionError, SessionHandle};
use millrace_notify::{State, notify};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// A daemon that cannot start or continue.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory cannot be used.
    #[error("state = {}: {error}", path.display())]
    State {
        /// The directory, or a file in it.
        path: PathBuf,
        error: io::Error,
    },
    /// Another daemon uses the state directory.
    #[error("{} is the state of a daemon that runs; give each daemon a state directory of its own", path.display())]
    Running { path: PathBuf },
    /// Metrics cannot be served.
    #[error("metrics = \"{address}\": {error}")]
    Metrics {
        address: std::net::SocketAddr,
        error: io::Error,
    },
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(io::Error),
    /// The identity cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The session cannot start or continue.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The addresses and the key of a daemon that listens.
#[derive(Clone, Debug)]
pub struct Serving {
    /// The address that is bound.
    pub address: String,
    /// The daemon's key.
    pub key: String,
    /// The Unix socket of status and metrics.
    pub socket: PathBuf,
    /// The TCP address of metrics.
    pub metrics: Option<std::net::SocketAddr>,
}

/// Runs the daemon with a configuration file until SIGTERM or SIGINT. It blocks these signals and SIGHUP: other threads must not
/// have started. `on_start` is called when it listens.
///
/// # Errors
/// If it cannot start, or its socket fails.
pub fn serve(path: &Path, on_start: impl FnOnce(&Serving)) -> Result<(), ServeError> {
    let config = Config::load(path)?;
    let signals = Signals::block().map_err(ServeError::Signals)?;
    let _lock = lock_state(&config.state)?;
    let state_error = |path: PathBuf| move |error| ServeError::State { path, error };
    let identity = Identity::load_or_create(&config.state.join("identity"))?;
    let audit = Audit::open(&config.state).map_err(state_error(config.state.clone()))?;
    let grants = Arc::new(Grants::new(&config, audit));
    let options = ReceiveOptions {
        listen: config.listen,
        silence: config.silence,
        patience: config.patience,
        ..ReceiveOptions::default()
    };
    let access: Arc<dyn millrace_courier::access::Access> = Arc::clone(&grants) as _;
    let mut session = Session::serve(access, identity, options)?;
    let Some(Event::Listening { key, address, .. }) = session.next() else {
        // A session that ends before it listens returns the reason.
        return session.join().map(|_| ()).map_err(Into::into);
    };
    let draining = Arc::new(AtomicBool::new(false));
    let daemon = Daemon {
        address: address.clone(),
        key: key.clone(),
        version: env!("CARGO_PKG_VERSION"),
        started: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64(),
    };
    let socket = config.state.join("courier.sock");
    let pages = |with_status: bool| -> Arc<http::Pages> {
        let (daemon, grants, draining) = (daemon.clone(), Arc::clone(&grants), Arc::clone(&draining));
        Arc::new(move |path: &str| {
            let draining = draining.load(Ordering::Relaxed);
            match path {
                "/metrics" => Some(("text/plain; version=0.0.4", render(&daemon, &grants, draining))),
                "/status" if with_status => Some(("application/json", status(&daemon, &grants, draining))),
                _ => None,
            }
        })
    };
    http::serve_unix(&socket, pages(true)).map_err(state_error(socket.clone()))?;
    let metrics = match config.metrics {
        Some(address) => {
            let bound = http::serve_tcp(address, pages(false));
            Some(bound.map_err(|error| ServeError::Metrics { address, error })?)
        }
        None => None,
    };
    on_start(&Serving {
        address,
        key,
        socket: socket.clone(),
        metrics,
    });
    tell(State::Ready);
    signals.handle(
        path.to_owned(),
        session.handle(),
        config.drain,
        Arc::clone(&grants),
        draining,
    );
    for event in session.events() {
        tracing::debug!(?event, "transfer");
    }
    let result = session.join();
    let _ = fs::remove_file(socket);
    result?;
    Ok(())
}

/// Tells the service manager the state of the daemon.
fn tell(state: State) {
    if let Err(error) = notify(state) {
        tracing::warn!(%error, ?state, "the service manager was not told");
    }
}

/// Makes the state directory, and locks it against a second daemon.
fn lock_state(state: &Path) -> Result<Flock<File>, ServeError> {
    let failed = |error| ServeError::State {
        path: state.to_owned(),
        error,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .map_err(failed)?;
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(state.join("lock")).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        nix::errno::Errno::EWOULDBLOCK => ServeError::Running {
            path: state.to_owned(),
        },
        error => failed(error.into()),
    })
}

/// The signals of a daemon.
struct Signals(SignalFd);

impl Signals {
    fn block() -> io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
            set.add(signal);
        }
        set.thread_block()?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Handles signals in a thread that lasts as long as the process.
    fn handle(
        self,
        path: PathBuf,
        session: SessionHandle,
        drain: Duration,
        grants: Arc<Grants>,
        draining: Arc<AtomicBool>,
    ) {
        std::thread::spawn(move || {
            let mut drain = drain;
            while let Ok(Some(signal)) = self.0.read_signal() {
                if signal.ssi_signo == Signal::SIGHUP as u32 {
                    grants.reopen_audit();
                    reload(&path, &grants, &mut drain);
                } else if draining.swap(true, Ordering::Relaxed) {
                    session.cancel();
                } else {
                    tracing::info!(?drain, "draining");
                    tell(State::Stopping);
                    session.drain(drain);
                }
            }
        });
    }
}

/// Loads the configuration again; an invalid configuration changes nothing.
fn reload(path: &Path, grants: &Grants, drain: &mut Duration) {
    let loaded = Config::load(path);
    grants.activity.reloaded(loaded.is_ok());
    match loaded {
        Ok(config) => {
            grants.reload(&config);
            *drain = config.drain;
            tracing::info!(grants = config.grants.len(), "the configuration was loaded again");
        }
        Err(error) => tracing::error!(%error, "the configuration is not valid; the earlier one stays"),
    }
}
