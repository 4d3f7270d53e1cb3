//! The multiset of the priorities of some rules, from which the highest one is known without a scan of the rules.

use std::collections::BTreeMap;

use super::PRIORITY_SHIFT;

/// A multiset of priorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Priorities {
    counts: BTreeMap<u16, u32>,
}

impl Priorities {
    /// Adds the priority of a rank.
    pub(super) fn add(&mut self, rank: u64) {
        *self.counts.entry((rank >> PRIORITY_SHIFT) as u16).or_default() += 1;
    }

    /// Removes one occurrence of the priority of a rank.
    pub(super) fn subtract(&mut self, rank: u64) {
        let priority = (rank >> PRIORITY_SHIFT) as u16;
        if let Some(count) = self.counts.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&priority);
            }
        }
    }

    /// Returns the highest priority.
    pub(super) fn highest(&self) -> Option<u16> {
        self.counts.last_key_value().map(|(priority, _)| *priority)
    }

    /// Returns the lowest priority.
    pub(super) fn lowest(&self) -> Option<u16> {
        self.counts.first_key_value().map(|(priority, _)| *priority)
    }

    /// Returns the approximate size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        self.counts.len() * 8
    }
}
