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

use super::switch::FakeSwitch;
use crate::server::{BoundServer, Journal, Limits, Settings, StartError, Tcp};

/// The configuration of revision 1 in the store of a [`FakeServer`].
pub const CONFIG: &str = r#"
[[bridge]]
name = "br0"
[[bridge.port]]
name = "h1"
number = 1
device = "net_null0"
[[bridge.port]]
name = "h2"
number = 2
device = "net_null1"
"#;

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

/// A server of a [`FakeSwitch`] on its own thread, closed on drop.
pub struct FakeServer {
    socket: PathBuf,
    address: Option<SocketAddr>,
    directory: PrivateDirectory,
    store: Store,
    journal: Journal,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Serves a Unix socket in a temporary directory.
    ///
    /// # Errors
    /// A text that describes the failure.
    pub fn start() -> Result<FakeServer, String> {
        FakeServer::start_with(None, Limits::default())
    }

    /// Serves a Unix socket and `tcp`, with `limits`.
    ///
    /// # Errors
    /// A text that describes the failure.
    pub fn start_with(tcp: Option<Tcp>, limits: Limits) -> Result<FakeServer, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let directory = PrivateDirectory::make().map_err(|error| text(&error))?;
        let settings = Settings {
            tcp,
            limits,
            ..Settings::for_socket(directory.0.join("api.sock"))
        };
        let store = store()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| text(&error))?;
        let bound: Result<BoundServer, StartError> = runtime.block_on(BoundServer::bind(
            settings,
            Arc::new(FakeSwitch::with_store(store.clone())),
            store.clone(),
        ));
        let bound = bound.map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))?;
        let (socket, address) = (bound.socket().to_owned(), bound.address());
        let journal = bound.journal();
        let (close, closed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(bound.run(async {
                // A dropped sender closes the server, too.
                let _ = closed.await;
            }));
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        Ok(FakeServer {
            socket,
            address,
            directory,
            store,
            journal,
            close: Some(close),
            thread: Some(thread),
        })
    }

    /// Returns the path of the Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the TCP address, if it is served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Returns the address for a client: the TCP address if there is one, else the Unix socket.
    pub fn url(&self) -> String {
        match self.address {
            Some(address) => format!("http://{address}"),
            None => format!("unix:{}", self.socket.display()),
        }
    }

    /// Returns a directory that is removed with the server.
    pub fn directory(&self) -> &Path {
        &self.directory.0
    }

    /// Returns the journal of the server.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the store of the server.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// A directory with mode 0700, removed on drop.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn make() -> std::io::Result<PrivateDirectory> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("millrace-fake-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                // A killed process left a directory of the same name.
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
            // A server that panicked has already failed the test.
            let _ = thread.join();
        }
    }
}

/// The handlers without sockets, for fuzzers.
pub struct FakeService {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    // Streams end when the sender is dropped.
    _close: tokio::sync::watch::Sender<bool>,
}

impl FakeService {
    /// Returns the handlers of a [`FakeSwitch`] with a store in memory.
    ///
    /// # Errors
    /// A text that describes the failure.
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

    /// Sends one request with the headers that every method needs. Returns status and content type of the response.
    ///
    /// # Errors
    /// A text, if `path` is not a valid path.
    pub fn request(
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
