//! The condition under which flows are spread over workers, and the state of the spreading.

/// The condition under which workers hand packets to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spread {
    /// Never: a packet is processed by the worker that received it.
    Off,
    /// If a worker is overloaded and another one is not.
    #[default]
    Auto,
    /// Always: evenly at first, then as the load requires.
    Always,
}

/// The state of the spreading of one receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpreadStats {
    /// The worker that receives from the queue.
    pub worker: usize,
    /// True if packets are hashed.
    pub is_on: bool,
    /// Number of buckets that each worker owns, by worker.
    pub buckets: Vec<usize>,
    /// Number of changes of a bucket's owner since the port was opened.
    pub moved: u64,
    /// Number of changes of a bucket's owner that were given up because they took too long.
    pub aborted: u64,
    /// True if no request to move buckets is pending.
    pub has_completed: bool,
}
