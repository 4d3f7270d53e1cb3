//! The counters of a queue: written by the worker that owns it, read by any thread.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_types::{QueueId, Time};

use super::plan::PortPlan;
use crate::counters::{Counter, Gauge};

/// The counters of one queue. They outlive its scheduler, so that they survive a change of its settings.
#[derive(Debug, Default)]
pub struct QueueCounters {
    pub(super) tx_packets: Counter,
    pub(super) tx_bytes: Counter,
    pub(super) dropped: Counter,
    pub(super) waiting_packets: Gauge,
    pub(super) waiting_bytes: Gauge,
}

/// The values of the counters of one queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Number of packets that left the queue for the device.
    pub tx_packets: u64,
    /// Size of these packets in bytes, from the Ethernet header on, without check sequence.
    pub tx_bytes: u64,
    /// Number of packets that were dropped because the queue was full.
    pub dropped: u64,
    /// Number of packets that are queued.
    pub waiting_packets: usize,
    /// Size of the queued packets in bytes, counted as for rates.
    pub waiting_bytes: usize,
}

impl QueueCounters {
    /// Returns the values now.
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
pub type QueueCountersMap = BTreeMap<QueueId, Arc<QueueCounters>>;

/// The state of a queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// The number of the queue.
    pub id: QueueId,
    /// The time at which the queue was created.
    pub since: Time,
    /// The values of its counters.
    pub stats: QueueStats,
}

/// The control side's record of the queues of a port.
#[derive(Debug, Default)]
pub(crate) struct PortQueues(BTreeMap<QueueId, (Arc<QueueCounters>, Time)>);

impl PortQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Creates and removes queues as the plan says; a plain plan removes all queues. Remaining queues keep
    /// their counters.
    pub(crate) fn change(&mut self, plan: &PortPlan, now: Time) -> QueueCountersMap {
        let mut before = core::mem::take(&mut self.0);
        let wanted = if plan.is_plain() {
            Vec::new()
        } else {
            plan.all_queues()
        };
        for queue in wanted {
            let kept = before.remove(&queue.id);
            self.0
                .insert(queue.id, kept.unwrap_or_else(|| (Arc::default(), now)));
        }
        self.0
            .iter()
            .map(|(id, (counters, _))| (*id, Arc::clone(counters)))
            .collect()
    }

    pub(crate) fn read(&self) -> Vec<QueueStatus> {
        let status = |(id, (counters, since)): (&QueueId, &(Arc<QueueCounters>, Time))| QueueStatus {
            id: *id,
            since: *since,
            stats: counters.read(),
        };
        self.0.iter().map(status).collect()
    }
}
