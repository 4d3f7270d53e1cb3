//! The counters of the router: for each interface and worker, written by one worker and read by anyone.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use millrace_pipeline::{DropCounts, DropReason};

use crate::class::PuntClass;
use crate::icmp::ErrorClass;

/// Counters of one interface in one worker.
#[derive(Debug, Default)]
pub struct InterfaceCounters {
    pub(crate) rx_packets: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) tx_packets: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) fragments: Counter,
    pub(crate) punted: [Counter; PuntClass::COUNT],
    pub(crate) punt_limited: [Counter; PuntClass::COUNT],
    pub(crate) errors: [Counter; ErrorClass::COUNT],
    pub(crate) errors_limited: [Counter; ErrorClass::COUNT],
    pub(crate) drops: DropCounts,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(amount);
        self.0.store(sum, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl InterfaceCounters {
    /// Returns the counters of a new interface for `workers` workers.
    pub fn for_workers(workers: usize) -> Arc<[InterfaceCounters]> {
        (0..workers).map(|_| InterfaceCounters::default()).collect()
    }
}

/// The sum of the counters of an interface over all workers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceStats {
    /// Number of packets that arrived here for the router, whatever became of them.
    pub rx_packets: u64,
    /// Their size in bytes, from the Ethernet header on.
    pub rx_bytes: u64,
    /// Number of packets that the router sent here: forwarded packets, fragments, and its ICMP errors.
    pub tx_packets: u64,
    /// Their size in bytes, from the Ethernet header on.
    pub tx_bytes: u64,
    /// Number of fragments among the packets sent.
    pub fragments: u64,
    /// Number of packets for the kernel that its interface got, by class.
    pub punted: [u64; PuntClass::COUNT],
    /// Number of packets for the kernel that were dropped because their class had used up its rate, by class.
    pub punt_limited: [u64; PuntClass::COUNT],
    /// Number of ICMP errors about packets that arrived here, by class.
    pub errors: [u64; ErrorClass::COUNT],
    /// Number of ICMP errors that were not sent because of their rate limit, by class.
    pub errors_limited: [u64; ErrorClass::COUNT],
    /// Number of packets dropped that arrived here, by reason; reasons without packets are left out.
    pub drops: Vec<(DropReason, u64)>,
}

impl InterfaceStats {
    /// Returns the sum of the counters of all workers.
    pub fn of(counters: &[InterfaceCounters]) -> InterfaceStats {
        let sum =
            |field: fn(&InterfaceCounters) -> &Counter| counters.iter().map(|one| field(one).read()).sum();
        fn sums<const N: usize>(
            counters: &[InterfaceCounters],
            field: fn(&InterfaceCounters) -> &[Counter; N],
        ) -> [u64; N] {
            core::array::from_fn(|i| counters.iter().map(|one| field(one)[i].read()).sum())
        }
        let drops = DropReason::ALL.into_iter().filter_map(|reason| {
            let packets = counters.iter().map(|one| one.drops.read(reason)).sum();
            (packets != 0).then_some((reason, packets))
        });
        InterfaceStats {
            rx_packets: sum(|one| &one.rx_packets),
            rx_bytes: sum(|one| &one.rx_bytes),
            tx_packets: sum(|one| &one.tx_packets),
            tx_bytes: sum(|one| &one.tx_bytes),
            fragments: sum(|one| &one.fragments),
            punted: sums(counters, |one| &one.punted),
            punt_limited: sums(counters, |one| &one.punt_limited),
            errors: sums(counters, |one| &one.errors),
            errors_limited: sums(counters, |one| &one.errors_limited),
            drops: drops.collect(),
        }
    }
}
