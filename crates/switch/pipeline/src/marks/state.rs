//! The level at which marks of a port are used, and the counters of its packets, which workers and control side share.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// The use of the marks of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MarkLevel {
    /// Marks are not used; hash and queue are.
    Dispatch = 0,
    /// A mark finds the traversal, and the key of each packet is compared.
    Verify = 1,
    /// The key of one marked packet in 1,024 is compared.
    Trust = 2,
}

impl MarkLevel {
    fn from_number(number: u8) -> MarkLevel {
        match number {
            2 => MarkLevel::Trust,
            1 => MarkLevel::Verify,
            _ => MarkLevel::Dispatch,
        }
    }
}

/// The level of a port's marks. The control side sets it; a worker that finds a wrong mark lowers it at once.
#[derive(Debug)]
pub struct MarkState {
    level: AtomicU8,
    is_distrusted: AtomicBool,
}

impl MarkState {
    /// Returns a state with a level.
    pub fn new(level: MarkLevel) -> MarkState {
        MarkState {
            level: AtomicU8::new(level as u8),
            is_distrusted: AtomicBool::new(false),
        }
    }

    /// Returns the level; not above verify once a mark was wrong.
    #[inline]
    pub fn level(&self) -> MarkLevel {
        let level = MarkLevel::from_number(self.level.load(Ordering::Relaxed));
        if level == MarkLevel::Trust && self.is_distrusted() {
            MarkLevel::Verify
        } else {
            level
        }
    }

    /// Changes the level; trust has no effect once a mark was wrong.
    pub fn set_level(&self, level: MarkLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Returns true if a mark was wrong.
    #[inline]
    pub fn is_distrusted(&self) -> bool {
        self.is_distrusted.load(Ordering::Relaxed)
    }

    /// Ends trust: a mark was wrong.
    #[cold]
    pub fn distrust(&self) {
        self.is_distrusted.store(true, Ordering::Relaxed);
    }
}

/// Counters of one worker's packets at one port; the worker is the only writer.
#[derive(Debug)]
pub struct MarkCounts {
    packets: AtomicU64,
    marked: AtomicU64,
    used: AtomicU64,
    verified: AtomicU64,
    mismatches: AtomicU64,
    unknown: AtomicU64,
    samples_lost: AtomicU64,
    slots: Box<[AtomicU64]>,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

impl MarkCounts {
    /// Returns counters for this many slots.
    pub fn new(slots: usize) -> MarkCounts {
        MarkCounts {
            packets: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            used: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            mismatches: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            samples_lost: AtomicU64::new(0),
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns the number of packets that the port has received since its device connected.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Returns the number of packets with a mark, as far as marks were looked at.
    pub fn marked(&self) -> u64 {
        self.marked.load(Ordering::Relaxed)
    }

    /// Returns the number of packets whose mark replaced the lookup.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the number of packets whose key was compared with that of their mark.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Returns the number of packets that differ from the key of their mark.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }

    /// Returns the number of packets whose mark names no slot, or a slot of another time.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Returns the number of sampled keys that were dropped because the control side had not taken earlier ones.
    pub fn samples_lost(&self) -> u64 {
        self.samples_lost.load(Ordering::Relaxed)
    }

    /// Returns the number of packets of a slot so far, whatever keys it had.
    pub fn of_slot(&self, slot: usize) -> u64 {
        self.slots
            .get(slot)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Counts a sampled key that was dropped.
    pub fn count_lost_sample(&self) {
        add(&self.samples_lost, 1);
    }

    #[inline]
    pub(crate) fn count_burst(&self, packets: u64, marked: u64) {
        add(&self.packets, packets);
        add(&self.marked, marked);
    }

    #[inline]
    pub(crate) fn count_used(&self, packets: u64) {
        add(&self.used, packets);
    }

    #[inline]
    pub(crate) fn count_verified(&self) {
        add(&self.verified, 1);
    }

    #[cold]
    pub(crate) fn count_mismatch(&self) {
        add(&self.mismatches, 1);
    }

    #[inline]
    pub(crate) fn count_unknown(&self) {
        add(&self.unknown, 1);
    }

    #[inline(always)]
    pub(crate) fn count_slot(&self, slot: u32) {
        if let Some(counter) = self.slots.get(slot as usize) {
            add(counter, 1);
        }
    }
}
