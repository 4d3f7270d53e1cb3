//! Counters with one writer: a worker adds with a relaxed load and store, and any thread reads.

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only its one writer calls this; a second writer would lose counts, but memory stays
    /// safe.
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

/// The counters of one worker at one port.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) tx_dropped: Counter,
}

/// The sum of all workers' counters at one port.
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
    /// Packets dropped because the device did not take them in time.
    pub tx_dropped: u64,
}

impl PortStats {
    /// Adds the counters of another port.
    pub(crate) fn add(&mut self, other: &PortStats) {
        self.rx_packets += other.rx_packets;
        self.rx_bytes += other.rx_bytes;
        self.tx_packets += other.tx_packets;
        self.tx_bytes += other.tx_bytes;
        self.tx_dropped += other.tx_dropped;
    }
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

/// The counters of one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) polls: Counter,
    pub(crate) busy_polls: Counter,
    pub(crate) packets: Counter,
    pub(crate) busy_nanos: Counter,
    pub(crate) spread_nanos: Counter,
    pub(crate) handed_off: Counter,
    pub(crate) sleeps: Counter,
    pub(crate) slept_nanos: Counter,
    pub(crate) rx_queues: Gauge,
    /// The time in nanoseconds at which the last round began that left no packet in a receive queue.
    pub(crate) received_until: Gauge,
}

/// The counters of one worker, and its core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerStats {
    /// The number of the worker, from 0.
    pub worker: usize,
    /// The CPU core that the worker is bound to.
    pub core: Option<usize>,
    /// Number of rounds, each of which polls all queues.
    pub polls: u64,
    /// Number of rounds that found a packet.
    pub busy_polls: u64,
    /// Number of packets processed.
    pub packets: u64,
    /// Number of packets received and handed off to another worker.
    pub handed_off: u64,
    /// Nanoseconds spent in rounds that found a packet.
    pub busy_nanos: u64,
    /// The part of `busy_nanos` spent on handing packets off.
    pub spread_nanos: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Nanoseconds asleep.
    pub slept_nanos: u64,
    /// Number of receive queues that the worker polls now.
    pub rx_queues: usize,
}
