//! Counters of one direction. One of the two halves writes each counter, and any thread may read it.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use serde::Serialize;

use crate::histogram::{Histogram, HistogramSnapshot, add};
use crate::model::{DropReason, Release};

/// The counters of both halves.
pub(crate) struct Counters {
    pub(crate) sender: CachePadded<SenderCounters>,
    pub(crate) receiver: CachePadded<ReceiverCounters>,
    pub(crate) delay_asked: Histogram,
    pub(crate) delay_given: Histogram,
    pub(crate) lateness: Histogram,
    memory_size: usize,
}

#[derive(Default)]
pub(crate) struct SenderCounters {
    offered: AtomicU64,
    bypassed: AtomicU64,
    duplicated: AtomicU64,
    reordered: AtomicU64,
    corrupted: AtomicU64,
    stored: AtomicU64,
    background_bytes: AtomicU64,
    memory_written: AtomicU64,
    memory_high: AtomicU64,
    changes: AtomicU64,
    icmp_errors_sent: AtomicU64,
    icmp_errors_rate_limited: AtomicU64,
    drops: [AtomicU64; DropReason::ALL.len()],
}

#[derive(Default)]
pub(crate) struct ReceiverCounters {
    released: AtomicU64,
    released_bytes: AtomicU64,
    late: AtomicU64,
    memory_freed: AtomicU64,
}

/// The limit of lateness, 1 ms: a frame that the receiver takes later than this after its release counts as
/// late.
pub const LATE_NANOS: u64 = 1_000_000;

impl Counters {
    pub(crate) fn new(memory_size: usize) -> Counters {
        Counters {
            sender: CachePadded::default(),
            receiver: CachePadded::default(),
            delay_asked: Histogram::new(),
            delay_given: Histogram::new(),
            lateness: Histogram::new(),
            memory_size,
        }
    }

    #[inline]
    pub(crate) fn offered(&self, copies: usize) {
        add(&self.sender.offered, 1);
        if copies > 1 {
            add(&self.sender.duplicated, copies as u64 - 1);
        }
    }

    pub(crate) fn bypassed(&self) {
        add(&self.sender.bypassed, 1);
    }

    #[inline]
    pub(crate) fn dropped(&self, reason: DropReason) {
        add(&self.sender.drops[reason as usize], 1);
    }

    /// Counts a stored frame that bypasses the model, and records no delay.
    pub(crate) fn stored_without_delay(&self) {
        add(&self.sender.stored, 1);
    }

    #[inline]
    pub(crate) fn stored(&self, release: &Release) {
        add(&self.sender.stored, 1);
        if release.reordered {
            add(&self.sender.reordered, 1);
        }
        if release.flips.is_some() {
            add(&self.sender.corrupted, 1);
        }
        self.delay_asked.record(release.drawn_delay);
        self.delay_given
            .record(release.at.nanos().saturating_sub(release.sent.nanos()));
    }

    /// Returns the largest number of bytes in use so far.
    #[inline]
    pub(crate) fn memory_high(&self) -> u64 {
        self.sender.memory_high.load(Ordering::Relaxed)
    }

    /// Records the bytes of all records that were written since the start, the bytes in use, and the bytes of
    /// background traffic.
    #[inline]
    pub(crate) fn memory(&self, written: u64, used: u64, background_bytes: u64) {
        self.sender.memory_written.store(written, Ordering::Relaxed);
        if used > self.memory_high() {
            self.sender.memory_high.store(used, Ordering::Relaxed);
        }
        self.sender
            .background_bytes
            .store(background_bytes, Ordering::Relaxed);
    }

    /// Records the bytes of all records whose memory was returned to the sender since the start.
    #[inline]
    pub(crate) fn freed(&self, bytes: u64) {
        self.receiver.memory_freed.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn changed(&self) {
        add(&self.sender.changes, 1);
    }

    pub(crate) fn icmp_error_sent(&self) {
        add(&self.sender.icmp_errors_sent, 1);
    }

    pub(crate) fn icmp_error_rate_limited(&self) {
        add(&self.sender.icmp_errors_rate_limited, 1);
    }

    #[inline]
    pub(crate) fn released(&self, size: usize, late_by: u64) {
        add(&self.receiver.released, 1);
        add(&self.receiver.released_bytes, size as u64);
        self.lateness.record(late_by);
        if late_by > LATE_NANOS {
            add(&self.receiver.late, 1);
        }
    }

    /// Returns the bytes of records whose memory was not returned to the sender, at most the size of the memory.
    fn memory_used(&self) -> u64 {
        // As in `in_flight`, the counter of the receiver is read first.
        let freed = self.receiver.memory_freed.load(Ordering::Acquire);
        self.sender
            .memory_written
            .load(Ordering::Acquire)
            .saturating_sub(freed)
            .min(self.memory_size as u64)
    }

    /// Returns the number of waiting frames.
    pub(crate) fn in_flight(&self) -> u64 {
        // This order of reads keeps the difference from being negative if a frame is stored and released in
        // between.
        let released = self.receiver.released.load(Ordering::Acquire);
        self.sender
            .stored
            .load(Ordering::Acquire)
            .saturating_sub(released)
    }

    pub(crate) fn snapshot(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (sender, receiver) = (&self.sender, &self.receiver);
        Stats {
            offered: read(&sender.offered),
            bypassed: read(&sender.bypassed),
            duplicated: read(&sender.duplicated),
            reordered: read(&sender.reordered),
            corrupted: read(&sender.corrupted),
            background_bytes: read(&sender.background_bytes),
            released: read(&receiver.released),
            released_bytes: read(&receiver.released_bytes),
            late: read(&receiver.late),
            in_flight: self.in_flight(),
            memory_size: self.memory_size as u64,
            memory_used: self.memory_used(),
            memory_high: read(&sender.memory_high),
            changes: read(&sender.changes),
            icmp_errors_sent: read(&sender.icmp_errors_sent),
            icmp_errors_rate_limited: read(&sender.icmp_errors_rate_limited),
            drops: DropReason::ALL
                .iter()
                .map(|reason| (*reason, read(&sender.drops[*reason as usize])))
                .collect(),
            delay_asked: self.delay_asked.snapshot(),
            delay_given: self.delay_given.snapshot(),
            lateness: self.lateness.snapshot(),
        }
    }
}

/// The counters of a direction at one moment. When no frame is between the two halves, offered + duplicated =
/// released + in_flight + the sum of the drops.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stats {
    /// Frames that were offered.
    pub offered: u64,
    /// Offered frames that bypassed the model.
    pub bypassed: u64,
    /// Second copies of duplicated frames.
    pub duplicated: u64,
    /// Frames that the reorder stage moved.
    pub reordered: u64,
    /// Frames that were delivered with inverted bits.
    pub corrupted: u64,
    /// Bytes of background traffic on the link.
    pub background_bytes: u64,
    /// Frames that the receiver took.
    pub released: u64,
    /// Bytes of the frames that the receiver took.
    pub released_bytes: u64,
    /// Frames that the receiver took more than 1 ms after their release.
    pub late: u64,
    /// Frames that wait for their release or for the receiver.
    pub in_flight: u64,
    /// Bytes of memory for frames.
    pub memory_size: u64,
    /// The bytes of memory in use.
    pub memory_used: u64,
    /// The largest number of bytes in use when the sender published frames.
    pub memory_high: u64,
    /// Changes of parameters that the sender has applied.
    pub changes: u64,
    /// ICMP errors that answered packets over the MTU.
    pub icmp_errors_sent: u64,
    /// Packets over the MTU that got no ICMP error because of the rate limit.
    pub icmp_errors_rate_limited: u64,
    /// Dropped frames by reason. Every reason has an entry.
    pub drops: Vec<(DropReason, u64)>,
    /// Drawn delays of the frames that did not bypass the model.
    pub delay_asked: HistogramSnapshot,
    /// Delays after ordering, reordering and duplication. In ordered mode, jitter makes them longer than the
    /// drawn delays.
    pub delay_given: HistogramSnapshot,
    /// The time from the release of a frame to the moment at which the receiver took it.
    pub lateness: HistogramSnapshot,
}

impl Stats {
    /// Returns the number of frames that were dropped for a reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops
            .iter()
            .filter(|(known, _)| *known == reason)
            .map(|(_, count)| count)
            .sum()
    }

    /// Returns the number of frames that were dropped.
    pub fn dropped_in_all(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }
}
