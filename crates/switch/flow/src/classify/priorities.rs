//! Which priorities some rules have, so that the highest is known without looking at the rules.

use std::collections::BTreeMap;

use super::PRIORITY_SHIFT;

/// A multiset of priorities.
#[derive(Clone, Debug, Default)]
pub(super) struct Priorities {
    counts: BTreeMap<u16, u32>,
}

impl Priorities {
    /// Adds the priority of this rank.
    pub(super) fn add(&mut self, rank: u64) {
        *self.counts.entry((rank >> PRIORITY_SHIFT) as u16).or_default() += 1;
    }

    /// Removes the priority of this rank once.
    pub(super) fn subtract(&mut self, rank: u64) {
        let priority = (rank >> PRIORITY_SHIFT) as u16;
        if let Some(count) = self.counts.get_mut(&priority) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&priority);
            }
        }
    }

    /// The highest priority.
    pub(super) fn highest(&self) -> Option<u16> {
        self.counts.last_key_value().map(|(priority, _)| *priority)
    }

    /// The lowest priority.
    pub(super) fn lowest(&self) -> Option<u16> {
        self.counts.first_key_value().map(|(priority, _)| *priority)
    }

    /// Bytes of heap in use, about.
    pub(super) fn heap_size(&self) -> usize {
        self.counts.len() * 8
    }
}
