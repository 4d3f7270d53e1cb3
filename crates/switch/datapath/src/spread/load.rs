//! The load of a worker, by which RETA buckets move to other workers.

/// The share of time, 0 to 1, from which on a worker's buckets may move to other workers.
const FULL_LOAD: f64 = 0.7;

/// The load of a worker since the last sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Load {
    /// The share of time spent on packets, 0 to 1.
    pub(super) busy: f64,
    /// The share of time spent on hashing and hand-off; part of `busy`.
    pub(super) spreading: f64,
    /// Nanoseconds for each packet, from receiving to sending.
    pub(super) packet_nanos: f64,
    /// Number of packets that the worker processed.
    pub(super) packets: f64,
    /// Number of packets that the worker's rings refused.
    pub(super) refused: f64,
}

impl Load {
    /// Returns true if buckets of the worker may move to other workers.
    pub(super) fn is_full(&self) -> bool {
        self.busy >= FULL_LOAD
    }
}
