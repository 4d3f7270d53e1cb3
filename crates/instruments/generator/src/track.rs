//! Tracking of the packets of a run: received, duplicated, reordered.

/// The distance in packets at which a duplicate is still recognised: a fifth of a second at five million packets per
/// second.
const WINDOW: u64 = 1 << 20;

/// Tracks the packets of one run.
#[derive(Debug, Clone)]
pub struct Tracker {
    /// One bit for each of the last [`WINDOW`] sequence numbers before `end`.
    seen: Box<[u64]>,
    /// The highest received sequence number plus one.
    end: u64,
    /// The highest received sequence number of each flow plus one.
    flows: Box<[u64]>,
    /// The counters.
    pub counts: Counts,
}

/// The counters of a [`Tracker`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that arrived for the first time.
    pub unique: u64,
    /// Packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after a later one of the same flow.
    pub reordered: u64,
    /// Packets with sequence numbers before the window. They may be duplicates, but count as unique and as
    /// reordered.
    pub late: u64,
}

impl Tracker {
    /// Returns a tracker for a number of flows.
    pub fn new(flows: usize) -> Tracker {
        Tracker {
            seen: vec![0; (WINDOW / 64) as usize].into_boxed_slice(),
            end: 0,
            flows: vec![0; flows].into_boxed_slice(),
            counts: Counts::default(),
        }
    }

    /// Resets the tracker.
    pub fn clear(&mut self) {
        self.seen.fill(0);
        self.flows.fill(0);
        self.end = 0;
        self.counts = Counts::default();
    }

    /// Records the arrival of a packet.
    #[inline]
    pub fn arrive(&mut self, seq: u64, flow: u32) {
        if seq >= self.end {
            self.advance(seq + 1);
        } else if self.end - seq > WINDOW {
            self.counts.late += 1;
            self.counts.unique += 1;
            self.counts.reordered += 1;
            return;
        }
        let (word, bit) = Self::bit(seq);
        if let Some(word) = self.seen.get_mut(word) {
            if *word & bit != 0 {
                self.counts.duplicated += 1;
                return;
            }
            *word |= bit;
        }
        self.counts.unique += 1;
        if let Some(last) = self.flows.get_mut(flow as usize) {
            if seq < *last {
                self.counts.reordered += 1;
            } else {
                *last = seq + 1;
            }
        }
    }

    #[inline]
    fn bit(seq: u64) -> (usize, u64) {
        ((seq % WINDOW / 64) as usize, 1 << (seq % 64))
    }

    /// Clears the bits of the sequence numbers from the present end to `end`.
    #[inline]
    fn advance(&mut self, end: u64) {
        if end - self.end >= WINDOW {
            self.seen.fill(0);
        } else {
            for seq in self.end..end {
                let (word, bit) = Self::bit(seq);
                if let Some(word) = self.seen.get_mut(word) {
                    *word &= !bit;
                }
            }
        }
        self.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    #[test]
    fn packets_in_order_are_neither_reordered_nor_duplicated() {
        let mut tracker = Tracker::new(3);
        for seq in 0..3_000_000 {
            tracker.arrive(seq, (seq % 3) as u32);
        }
        assert_eq!(
            tracker.counts,
            Counts {
                unique: 3_000_000,
                ..Counts::default()
            }
        );
    }

    #[test]
    fn order_counts_within_a_flow_only() {
        let mut tracker = Tracker::new(2);
        for (seq, flow) in [(0, 0), (3, 1), (2, 0), (1, 1)] {
            tracker.arrive(seq, flow);
        }
        assert_eq!((tracker.counts.unique, tracker.counts.reordered), (4, 1));
    }

    #[test]
    fn a_packet_from_before_the_window_is_late() {
        let mut tracker = Tracker::new(1);
        tracker.arrive(WINDOW + 10, 0);
        tracker.arrive(10, 0);
        tracker.arrive(11, 0);
        assert_eq!((tracker.counts.late, tracker.counts.duplicated), (1, 0));
        assert_eq!((tracker.counts.unique, tracker.counts.reordered), (3, 2));
    }

    proptest! {
        #[test]
        fn counts_equal_those_of_a_set_and_a_map(arrivals: Vec<(u16, u8)>) {
            let mut tracker = Tracker::new(256);
            let (mut seen, mut highest) = (HashSet::new(), HashMap::new());
            let mut expected = Counts::default();
            for (seq, flow) in arrivals {
                // A sequence number belongs to one flow.
                let (seq, flow) = (u64::from(seq) << 8 | u64::from(flow), u32::from(flow));
                tracker.arrive(seq, flow);
                let reach = seen.iter().max().map_or(0, |highest: &u64| highest + 1).max(seq + 1);
                if reach - seq > WINDOW {
                    continue;
                }
                if !seen.insert(seq) {
                    expected.duplicated += 1;
                    continue;
                }
                expected.unique += 1;
                let last = highest.entry(flow).or_insert(seq);
                if seq < *last {
                    expected.reordered += 1;
                }
                *last = (*last).max(seq);
            }
            let counts = tracker.counts;
            prop_assert_eq!(counts.duplicated, expected.duplicated);
            prop_assert_eq!(counts.unique - counts.late, expected.unique);
            prop_assert_eq!(counts.reordered - counts.late, expected.reordered);
        }
    }
}
