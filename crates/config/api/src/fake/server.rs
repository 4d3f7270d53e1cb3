//! Servers of a [`FakeSwitch`], with sockets and without.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_model::Config;
use millrace_store::{Note, Proposal, Store, UnixTime};
use tokio::sync::oneshot;

use super::{CONFIG, FakeSwitch};
use crate::server::{Bound, Settings, StartError};

/// A store in memory with [`CONFIG`] as revision 1.
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
    address: SocketAddr,
    store: Store,
    close: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Serves on a loopback address that the system chooses.
    ///
    /// # Errors
    /// Text, for a test to fail with.
    pub fn start() -> Result<FakeServer, String> {
        FakeServer::start_with(Settings::loopback(0))
    }

    /// Serves as `settings` say.
    ///
    /// # Errors
    /// Text, for a test to fail with.
    pub fn start_with(settings: Settings) -> Result<FakeServer, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
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
        let bound = bound.map_err(|error| text(&error))?;
        let address = bound.address();
        let (close, closed) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            runtime.block_on(bound.run(async {
                // A sender that was dropped closes, too.
                let _ = closed.await;
            }));
            runtime.shutdown_timeout(Duration::from_secs(1));
        });
        Ok(FakeServer {
            address,
            store,
            close: Some(close),
            thread: Some(thread),
        })
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves, as a client is told.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its store.
    pub fn store(&self) -> &Store {
        &self.store
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
