//! What a queue counted: written by the worker that owns it, read by anybody.

use std::sync::Arc;

use millrace_types::QueueId;

use crate::counters::{Counter, Gauge};

/// The counters of one queue. They outlive its scheduler, so that a change of its settings forgets nothing.
#[derive(Debug, Default)]
pub struct QueueCounters {
    pub(super) tx_packets: Counter,
    pub(super) tx_bytes: Counter,
    pub(super) dropped: Counter,
    pub(super) waiting_packets: Gauge,
    pub(super) waiting_bytes: Gauge,
}

/// What one queue of a port counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Packets that left the queue for the device.
    pub tx_packets: u64,
    /// Their bytes, from the Ethernet header on, without check sequence.
    pub tx_bytes: u64,
    /// Packets that were dropped because the queue was full.
    pub dropped: u64,
    /// Packets that wait.
    pub waiting_packets: usize,
    /// Their bytes, counted as rates are.
    pub waiting_bytes: usize,
}

impl QueueCounters {
    /// The counts now.
    pub fn read(&self) -> QueueStats {
        QueueStats {
            tx_packets: self.tx_packets.read(),
            tx_bytes: self.tx_bytes.read(),
            dropped: self.dropped.read(),
            waiting_packets: self.waiting_packets.read(),
            waiting_bytes: self.waiting_bytes.read(),
        }
    }
}

/// The counters of queues by number.
pub type QueueCountersMap = std::collections::BTreeMap<QueueId, Arc<QueueCounters>>;
