//! The record of one port of a bridge.

use std::sync::Arc;

use millrace_types::PortNo;
use thiserror::Error;

use crate::counters::{PortCounters, PortStats};
use crate::io::{Device, OpenError};
use crate::offload::port::PortOffload;
use crate::schedule::PortQueues;
use crate::spread::reta::Reta;
use crate::worker::Policing;

/// The reason why a port cannot be added.
#[derive(Debug, Error)]
pub enum AddPortError {
    /// The bridge has a port with this number.
    #[error("port {0} exists already. To fix it: choose another number, or remove that port first")]
    Exists(PortNo),
    /// The device of the port cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A port's device and counters.
pub(super) struct BridgePort {
    pub(super) device: Box<dyn Device>,
    /// The counters of each worker, by worker.
    pub(super) counters: Vec<Arc<PortCounters>>,
    /// The counters of packets that the control side sends and no worker takes.
    pub(super) control_counters: PortCounters,
    /// The worker of each receive queue, by queue.
    pub(super) rx_workers: Vec<usize>,
    /// The redirection table of each receive queue, by queue; none if workers hand nothing off.
    pub(super) retas: Vec<Arc<Reta>>,
    /// The worker that sends for workers without a transmit queue.
    pub(super) owner: usize,
    pub(super) queues: PortQueues,
    pub(super) policed: Option<Policing>,
    /// The LAG of which the device is a member.
    pub(super) lag: Option<PortNo>,
    /// The use of the device's entries, if it has any and the configuration asks for it.
    pub(super) offload: Option<Box<PortOffload>>,
    /// The counters of members that were removed, if the port is a LAG.
    pub(super) past: PortStats,
}

impl BridgePort {
    /// Returns the sum of the counters of the port itself.
    pub(super) fn stats(&self) -> PortStats {
        let mut sum = self.past;
        self.control_counters.add_to(&mut sum);
        self.counters
            .iter()
            .for_each(|counters| counters.add_to(&mut sum));
        sum
    }
}
