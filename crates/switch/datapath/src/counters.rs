//! Counters with one writer: a worker adds with a plain load and store, anybody reads.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds. To be called by the one writer only; a second one would lose counts, never memory safety.
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }

    /// Returns the value now.
    #[inline]
    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that one thread sets.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> usize {
        self.0.load(Ordering::Relaxed) as usize
    }
}

/// What one worker counted at one port.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) tx_dropped: Counter,
}

/// What all workers counted at one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that the device did not take in time.
    pub tx_dropped: u64,
}

impl PortCounters {
    pub(crate) fn add_to(&self, sum: &mut PortStats) {
        sum.rx_packets += self.rx_packets.read();
        sum.rx_bytes += self.rx_bytes.read();
        sum.tx_packets += self.tx_packets.read();
        sum.tx_bytes += self.tx_bytes.read();
        sum.tx_dropped += self.tx_dropped.read();
    }
}

/// What one worker did.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) polls: Counter,
    pub(crate) busy_polls: Counter,
    pub(crate) packets: Counter,
    pub(crate) busy_nanos: Counter,
    pub(crate) spread_nanos: Counter,
    pub(crate) given: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) slept_nanos: Counter,
    pub(crate) rx_queues: Gauge,
}

/// What one worker did, and where it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerStats {
    /// The worker's number, from 0.
    pub worker: usize,
    /// The CPU core that it is bound to.
    pub core: Option<usize>,
    /// Times that it looked at all of its queues.
    pub polls: u64,
    /// Those that found a packet.
    pub busy_polls: u64,
    /// Packets processed.
    pub packets: u64,
    /// Packets received and given to another worker.
    pub given: u64,
    /// Nanoseconds in polls that found a packet.
    pub busy_nanos: u64,
    /// Of these, nanoseconds spent on giving packets to other workers.
    pub spread_nanos: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Nanoseconds asleep.
    pub slept_nanos: u64,
    /// Receive queues that it polls now.
    pub rx_queues: usize,
}
