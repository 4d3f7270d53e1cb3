//! The settings of a port's scheduler.

use millrace_types::{BitRate, QueueId};

/// Maximum number of queues of a port: a scheduler has one bit for each queue in a 64-bit word.
pub const QUEUES_MAX: usize = 64;

/// The settings of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlan {
    /// The number of the queue on the port.
    pub id: QueueId,
    /// The rate that the queue gets before any other queue gets more than its guarantee, whatever the
    /// priorities; `None` for no guarantee.
    pub min_rate: Option<BitRate>,
    /// The rate that the queue never exceeds; `None` for no limit.
    pub max_rate: Option<BitRate>,
    /// Queues of a higher priority are served first.
    pub priority: u8,
    /// The share among queues of one priority.
    pub weight: u16,
    /// Maximum number of queued packets.
    pub packets_max: usize,
    /// Maximum size of the queued packets in bytes, counted as for rates; `None` for no limit.
    pub bytes_max: Option<u64>,
}

impl QueuePlan {
    /// The default of `packets_max`.
    pub const PACKETS_MAX: usize = 1000;

    /// Returns a queue without limits and guarantees.
    pub const fn new(id: QueueId) -> QueuePlan {
        QueuePlan {
            id,
            min_rate: None,
            max_rate: None,
            priority: 0,
            weight: 1,
            packets_max: QueuePlan::PACKETS_MAX,
            bytes_max: None,
        }
    }
}

/// The settings of the scheduler of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortPlan {
    /// The rate that all queues together never exceed; `None` for the rate of the device.
    pub rate: Option<BitRate>,
    /// Bytes that are added to each packet's size, in all rates and limits. The size of a frame begins with
    /// the Ethernet header and excludes the frame check sequence. 24 bytes stand for frame check sequence,
    /// preamble and the gap between frames.
    pub overhead: u8,
    /// The queues, with different numbers. Queue 0 exists even if this list does not have it: packets without
    /// a queue, or with a queue that does not exist, use it. Queues beyond [`QUEUES_MAX`] are not created.
    pub queues: Vec<QueuePlan>,
}

impl PortPlan {
    /// The queue of packets that name no queue.
    pub const DEFAULT_QUEUE: QueueId = QueueId(0);

    /// Returns all queues, including the default queue, at most [`QUEUES_MAX`].
    pub fn all_queues(&self) -> Vec<QueuePlan> {
        let mut queues = self.queues.clone();
        let default = queues
            .iter()
            .position(|queue| queue.id == PortPlan::DEFAULT_QUEUE);
        match default {
            // The default queue must not be truncated.
            Some(at) if at >= QUEUES_MAX => queues.swap(0, at),
            Some(_) => {}
            None => queues.insert(0, QueuePlan::new(PortPlan::DEFAULT_QUEUE)),
        }
        queues.truncate(QUEUES_MAX);
        queues
    }

    /// Returns true if there is nothing to schedule.
    pub fn is_plain(&self) -> bool {
        self.rate.is_none() && self.queues.is_empty()
    }
}
