//! The settings of the poll loop.

use std::time::Duration;

/// The settings of the loop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The largest number of overdue packets to send at once.
    pub depth: u64,
    /// The interval of progress reports; zero for none.
    pub interval: Duration,
    /// The time without a poll of the queues that counts as an absence.
    pub absence: Duration,
    /// The time without a packet after which a draining run ends.
    pub drain: Duration,
    /// The periodic sleep that leaves the core to other threads; `None` for none.
    pub sleep: Option<PeriodicSleep>,
    /// The stamping interval N: one of N packets gets a stamp; at least 1.
    pub stamp_every: u64,
    /// True if payloads and header checksums of received packets are verified.
    pub verify: bool,
}

/// Pauses of the sender at a fixed interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodicSleep {
    /// The time between two sleeps.
    pub every: Duration,
    /// The duration of a sleep.
    pub length: Duration,
}
