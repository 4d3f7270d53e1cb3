//! Keeps the channels that the configuration wants.

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_types::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::active::keep_connected;
use super::passive::{bind, listen};
use super::status::Board;
use super::tls::TlsFiles;
use crate::control::BridgeHandle;

/// A task that ends when this is dropped.
struct Running<T> {
    wanted: T,
    task: JoinHandle<()>,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The channels of one bridge: connections that it opens, and addresses that it listens on. Dropping it ends
/// them all.
pub struct Connector<B: Backend> {
    bridge: BridgeHandle<B>,
    runtime: Handle,
    board: Arc<Board>,
    tls: Arc<TlsFiles>,
    active: Vec<Running<model::Controller>>,
    listeners: Vec<Running<model::Listener>>,
}

impl<B: Backend> Connector<B> {
    /// Returns a connector without channels for the bridge `name`; `runtime` serves those to come.
    pub fn new(name: String, bridge: BridgeHandle<B>, runtime: Handle) -> Connector<B> {
        Connector {
            bridge,
            runtime,
            board: Arc::new(Board::new(name)),
            tls: Arc::default(),
            active: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Starts, ends and changes channels until they are those of `config`. Channels that stay the same are
    /// not disturbed. Returns what is of no use (listeners that could not be bound, files for TLS), each with the
    /// reason and a remedy; it is tried again at the next call.
    pub fn apply(&mut self, config: &model::Bridge) -> Vec<(String, String)> {
        let mut unbound = Vec::new();
        if let Err(fault) = self.tls.set(config.tls.as_ref()) {
            unbound.push(("tls".to_owned(), fault.to_string()));
        }
        self.active
            .retain(|running| config.controllers.contains(&running.wanted));
        let listeners_len = self.listeners.len();
        self.listeners
            .retain(|running| config.listen.contains(&running.wanted) && !running.task.is_finished());
        // An address may be that of a listener that ends just now.
        let patience = if self.listeners.len() < listeners_len {
            Duration::from_secs(1)
        } else {
            Duration::ZERO
        };
        for wanted in &config.controllers {
            if !self.active.iter().any(|running| running.wanted == *wanted) {
                let task = keep_connected(
                    wanted.clone(),
                    Arc::clone(&self.tls),
                    self.bridge.clone(),
                    Arc::clone(&self.board),
                );
                self.active.push(Running {
                    wanted: wanted.clone(),
                    task: self.runtime.spawn(task),
                });
            }
        }
        let _in_runtime = self.runtime.enter();
        for wanted in &config.listen {
            if self.listeners.iter().any(|running| running.wanted == *wanted) {
                continue;
            }
            match bind(&wanted.target, patience) {
                Ok(listener) => {
                    // With the port that the system chose, where the configuration has 0.
                    let address = listener.address().map(tracing::field::display);
                    tracing::info!(bridge = %config.name, target = %wanted.target, address, "listening for controllers");
                    let task = listen(
                        listener,
                        wanted.clone(),
                        Arc::clone(&self.tls),
                        self.bridge.clone(),
                        Arc::clone(&self.board),
                    );
                    self.listeners.push(Running {
                        wanted: wanted.clone(),
                        task: self.runtime.spawn(task),
                    });
                }
                Err(reason) => unbound.push((format!("listener {}", wanted.target), reason)),
            }
        }
        unbound
    }

    /// How each channel is, for whoever wants to look at any time.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }
}
