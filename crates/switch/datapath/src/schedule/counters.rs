//! What a queue counted: written by the worker that owns it, read by anybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_types::{QueueId, Time};

use super::plan::PortPlan;
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
    /// Returns the counts now.
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

/// A queue of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatus {
    /// Its number.
    pub id: QueueId,
    /// Since when it is there.
    pub since: Time,
    /// What it counted.
    pub stats: QueueStats,
}

/// What the control side keeps of the queues of a port.
#[derive(Debug, Default)]
pub(crate) struct PortQueues(BTreeMap<QueueId, (Arc<QueueCounters>, Time)>);

impl PortQueues {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Has the queues of a plan, none if it is plain. Those that stay keep their counters.
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
