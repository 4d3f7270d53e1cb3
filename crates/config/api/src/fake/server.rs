//! Servers of a [`FakeSwitch`], with sockets and without.

use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_model::Config;
use millrace_store::{Note, Proposal, Store, UnixTime};
use tokio::sync::oneshot;

use super::{CONFIG, FakeSwitch};
use crate::server::{Bound, Limits, Settings, StartError, Tcp};

/// Returns a store in memory with [`CONFIG`] as revision 1.
fn store() -> Result<Store, String> {
    let now = UnixTime::from(std::time::SystemTime::now());
    let store = Store::in_memory(now).map_err(|error| error.to_string())?;
    let config = Config::from_toml("fake.toml", CONFIG).map_err(|error| error.to_string())?;
    let note = Note::new("fake", "begin");
    store
        .commit(
            Proposal {
                expected: None,
                config,
                note,
            },
            now,
        )
        .map_err(|error| error.to_string())?;
    Ok(store)
}

/// A server of a [`FakeSwitch`] on a thread of its own, closed on drop.
pub struct FakeServer {
    socket: PathBuf,
    address: Option<SocketAddr>,
    directory: PrivateDirectory,
    store: Store,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Serves on a Unix socket in a directory of its own.
    ///
    /// # Errors
    /// Text, for a test to fail with.
    pub fn start() -> Result<FakeServer, String> {
        FakeServer::start_with(None, Limits::default())
    }

    /// Serves on a Unix socket, and `tcp`, within `limits`.
    ///
    /// # Errors
    /// Text, for a test to fail with.
    pub fn start_with(tcp: Option<Tcp>, limits: Limits) -> Result<FakeServer, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let directory = PrivateDirectory::make().map_err(|error| text(&error))?;
        let settings = Settings {
            tcp,
            limits,
            ..Settings::at(directory.0.join("api.sock"))
        };
        let store = store()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| text(&error))?;
        let bound: Result<Bound, StartError> = runtime.block_on(Bound::bind(
            settings,
            Arc::new(FakeSwitch::of(store.clone())),
            store.clone(),
        ));
        let bound = bound.map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))?;
        let (socket, address) = (bound.socket().to_owned(), bound.address());
        let (close, closed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(bound.run(async {
                // A sender that was dropped closes, too.
                let _ = closed.await;
            }));
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        Ok(FakeServer {
            socket,
            address,
            directory,
            store,
            close: Some(close),
            thread: Some(thread),
        })
    }

    /// Returns the Unix socket that it serves.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the TCP address that it serves, if it serves one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where it serves, as a client is told: the TCP address if there is one.
    pub fn url(&self) -> String {
        match self.address {
            Some(address) => format!("http://{address}"),
            None => format!("unix:{}", self.socket.display()),
        }
    }

    /// A directory that goes with the server.
    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// A directory for this user alone, removed on drop.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn make() -> std::io::Result<PrivateDirectory> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("millrace-fake-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                // A process that was killed had the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| PrivateDirectory(path)),
            }
        }
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        drop(self.close.take());
        if let Some(thread) = self.thread.take() {
            // A server that panicked has failed the test already.
            let _ = thread.join();
        }
    }
}

/// The handlers without sockets: what a fuzzer asks.
pub struct FakeService {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    // Streams end when this is dropped.
    _close: tokio::sync::watch::Sender<bool>,
}

impl FakeService {
    /// Handlers over a [`FakeSwitch`] and a store in memory.
    ///
    /// # Errors
    /// Text, for a test to fail with.
    pub fn new() -> Result<FakeService, String> {
        let store = store()?;
        let (close, closing) = tokio::sync::watch::channel(false);
        let router = crate::server::service(Arc::new(FakeSwitch::default()), store, closing);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        Ok(FakeService {
            runtime: runtime.map_err(|error| error.to_string())?,
            router,
            _close: close,
        })
    }

    /// The status and the content type of the answer to one request, whose headers are those that every
    /// method needs.
    ///
    /// # Errors
    /// Text, if the request cannot be made: the path is no path.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(u16, String), String> {
        use hyper::service::Service as _;
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", content_type)
            .header("if-match", "*")
            .body(axum::body::Body::from(body))
            .map_err(|error| error.to_string())?;
        let service = hyper_util::service::TowerToHyperService::new(self.router.clone());
        let Ok(answer) = self.runtime.block_on(service.call(request));
        let kind = answer
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or("");
        Ok((answer.status().as_u16(), kind.to_owned()))
    }
}
