//! The channels of a bridge, kept equal to the configuration.

use std::sync::Arc;

use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_types::{Dpid, Duration};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::active::keep_connected;
use super::passive::{bind, listen};
use super::status::ChannelTable;
use super::tls::TlsFiles;
use crate::control::BridgeHandle;
use crate::problem::Problem;

/// The task of a channel; dropping this aborts it.
struct Running<T> {
    wanted: T,
    task: JoinHandle<()>,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The channels of one bridge: the connections that it opens, and its listeners. Dropping it closes them.
pub struct Connector<B: Backend> {
    bridge: BridgeHandle<B>,
    runtime: Handle,
    channel_table: Arc<ChannelTable>,
    tls: Arc<TlsFiles>,
    /// The datapath ID that the connections know.
    dpid: Option<Dpid>,
    active: Vec<Running<model::Controller>>,
    listeners: Vec<Running<model::Listener>>,
}

impl<B: Backend> Connector<B> {
    /// Returns a connector without channels for the bridge `name`; `runtime` runs their tasks.
    pub fn new(name: String, bridge: BridgeHandle<B>, runtime: Handle) -> Connector<B> {
        Connector {
            bridge,
            runtime,
            channel_table: Arc::new(ChannelTable::new(name)),
            tls: Arc::default(),
            dpid: None,
            active: Vec::new(),
            listeners: Vec::new(),
        }
    }

    /// Starts, ends and changes channels until they equal `config`. Unchanged channels are not disturbed, unless the datapath ID
    /// changes, which a controller asks for once only. Returns the
    /// listeners that cannot be bound, and TLS files that cannot be used; the next call tries again.
    pub fn apply(&mut self, config: &model::Bridge) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Err(fault) = self.tls.set(config.tls.as_ref()) {
            problems.push(Problem::new("tls", fault));
        }
        let listeners_len = self.listeners.len();
        let dpid = Some(config.datapath_id());
        if std::mem::replace(&mut self.dpid, dpid) != dpid {
            self.active.clear();
            self.listeners.clear();
        }
        self.active
            .retain(|running| config.controllers.contains(&running.wanted));
        self.listeners
            .retain(|running| config.listen.contains(&running.wanted) && !running.task.is_finished());
        // An address may still be bound by a listener whose task was just aborted.
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
                    Arc::clone(&self.channel_table),
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
                    // The address has the port that the kernel chose where the configuration has 0.
                    let address = listener.address().map(tracing::field::display);
                    tracing::info!(bridge = %config.name, target = %wanted.target, address, "listening for controllers");
                    let task = listen(
                        listener,
                        wanted.clone(),
                        Arc::clone(&self.tls),
                        self.bridge.clone(),
                        Arc::clone(&self.channel_table),
                    );
                    self.listeners.push(Running {
                        wanted: wanted.clone(),
                        task: self.runtime.spawn(task),
                    });
                }
                Err(reason) => problems.push(Problem::new(format!("listener {}", wanted.target), reason)),
            }
        }
        problems
    }

    /// Returns the files for TLS.
    pub(crate) fn tls(&self) -> &Arc<TlsFiles> {
        &self.tls
    }

    /// Returns the states of all channels.
    pub fn channel_table(&self) -> &Arc<ChannelTable> {
        &self.channel_table
    }
}
