//! What is wanted of a port's scheduler.

use millrace_types::{BitRate, QueueId};

/// Queues that a port has at most: as many as the bits of a word, which is how a scheduler remembers them.
pub const QUEUES_MAX: usize = 64;

/// A queue as it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePlan {
    /// Its number on the port.
    pub id: QueueId,
    /// What it gets before any other queue gets more than that, whatever their priorities; `None` is nothing.
    pub min_rate: Option<BitRate>,
    /// What it gets at most; `None` is no limit.
    pub max_rate: Option<BitRate>,
    /// Queues of a higher priority are served first.
    pub priority: u8,
    /// The share among queues of one priority.
    pub weight: u16,
    /// Packets that wait at most.
    pub packets_max: usize,
    /// Bytes that wait at most, counted as rates are; `None` is no limit.
    pub bytes_max: Option<u64>,
}

impl QueuePlan {
    /// Packets that wait at most where nothing is said.
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

/// The scheduler of a port as it is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortPlan {
    /// What all queues together send at most; `None` is as fast as the device takes it.
    pub rate: Option<BitRate>,
    /// Bytes that each packet counts for beyond those of its frame, in all rates and limits. A frame counts from the
    /// Ethernet header on, without check sequence; 24 are check sequence, preamble and the gap between frames.
    pub overhead: u8,
    /// Its queues, of different numbers. Queue 0 is there even if it is not among them: packets that choose no queue,
    /// or one that is not there, go to it. Those beyond [`QUEUES_MAX`] are not made.
    pub queues: Vec<QueuePlan>,
}

impl PortPlan {
    /// Where packets go that choose no queue.
    pub const DEFAULT_QUEUE: QueueId = QueueId(0);

    /// All queues, with the one that is always there.
    pub fn all_queues(&self) -> Vec<QueuePlan> {
        let mut queues = self.queues.clone();
        if queues.iter().all(|queue| queue.id != PortPlan::DEFAULT_QUEUE) {
            queues.insert(0, QueuePlan::new(PortPlan::DEFAULT_QUEUE));
        }
        queues.truncate(QUEUES_MAX);
        queues
    }

    /// Returns true if there is anything to schedule.
    pub fn is_plain(&self) -> bool {
        self.rate.is_none() && self.queues.is_empty()
    }
}
