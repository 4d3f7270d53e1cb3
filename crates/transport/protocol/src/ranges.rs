//! Sets of numbers as sorted, disjoint, half-open ranges: packet numbers, bytes, extents.
//!
//! Most numbers arrive in ascending order, so that most changes are at the end of the vector.

use std::ops::Range;

/// A set of `u64`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    /// Sorted; no range is empty, touches or overlaps its neighbour.
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    /// Returns the empty set.
    pub const fn new() -> RangeSet {
        RangeSet { ranges: Vec::new() }
    }

    /// Returns true if nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges in ascending order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Returns how many numbers are in the set.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns true if the number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(at).is_some_and(|range| range.start <= number)
    }

    /// Adds a range; returns how many of its numbers are new.
    pub fn insert(&mut self, new: Range<u64>) -> u64 {
        if new.is_empty() {
            return 0;
        }
        if let Some(last) = self.ranges.last_mut()
            && new.start == last.end
        {
            last.end = new.end;
            return new.end - new.start;
        }
        // All ranges from `from` to `to` touch or overlap the new one, and merge with it.
        let from = self.ranges.partition_point(|range| range.end < new.start);
        let to = self.ranges.partition_point(|range| range.start <= new.end);
        let mut merged = new.clone();
        let mut known = 0;
        for range in &self.ranges[from..to] {
            known += range.end.min(new.end).saturating_sub(range.start.max(new.start));
            merged.start = merged.start.min(range.start);
            merged.end = merged.end.max(range.end);
        }
        self.ranges.splice(from..to, [merged]);
        (new.end - new.start) - known
    }

    /// Removes a range; returns how many of its numbers were there.
    pub fn remove(&mut self, old: Range<u64>) -> u64 {
        if old.is_empty() {
            return 0;
        }
        let from = self.ranges.partition_point(|range| range.end <= old.start);
        let to = self.ranges.partition_point(|range| range.start < old.end);
        if from >= to {
            return 0;
        }
        // Fast path: removes the start of one range, as an advancing cursor does.
        if let [range] = &mut self.ranges[from..to]
            && old.start <= range.start
            && old.end < range.end
        {
            let known = old.end - range.start;
            range.start = old.end;
            return known;
        }
        let overlap = |range: &Range<u64>| range.end.min(old.end) - range.start.max(old.start);
        let known = self.ranges[from..to].iter().map(overlap).sum();
        let (first, last) = (self.ranges[from].clone(), self.ranges[to - 1].clone());
        let left = first.start..old.start;
        let right = old.end..last.end;
        let rest = [left, right].into_iter().filter(|range| !range.is_empty());
        self.ranges.splice(from..to, rest);
        known
    }

    /// Removes every number that is in `other`. Both sets are walked once.
    pub fn remove_all(&mut self, other: &[Range<u64>]) {
        if other.is_empty() || self.ranges.is_empty() {
            return;
        }
        let mut rest = Vec::with_capacity(self.ranges.len());
        let mut cuts = other.iter().peekable();
        for range in self.ranges.drain(..) {
            let mut start = range.start;
            while let Some(cut) = cuts.peek() {
                if cut.end <= start {
                    cuts.next();
                    continue;
                }
                if cut.start >= range.end {
                    break;
                }
                if cut.start > start {
                    rest.push(start..cut.start);
                }
                start = cut.end;
                if cut.end >= range.end {
                    break;
                }
            }
            if start < range.end {
                rest.push(start..range.end);
            }
        }
        self.ranges = rest;
    }

    /// Returns the first number at or above `from`, or the first number of the set if there is none.
    pub fn first_from(&self, from: u64) -> Option<u64> {
        let at = self.ranges.partition_point(|range| range.end <= from);
        let range = self.ranges.get(at).or_else(|| self.ranges.first())?;
        Some(if range.contains(&from) { from } else { range.start })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn numbers(set: &RangeSet) -> BTreeSet<u64> {
        set.ranges().iter().flat_map(Clone::clone).collect()
    }

    proptest! {
        #[test]
        fn it_equals_a_set_of_single_numbers(
            steps in prop::collection::vec((0..3_u8, 0..200_u64, 0..30_u64), 1..80)
        ) {
            let (mut fast, mut slow) = (RangeSet::new(), BTreeSet::new());
            for (what, start, len) in steps {
                let range = start..start + len;
                match what {
                    0 => {
                        let before = slow.len();
                        slow.extend(range.clone());
                        prop_assert_eq!(fast.insert(range), (slow.len() - before) as u64);
                    }
                    1 => {
                        let before = slow.len();
                        slow.retain(|number| !range.contains(number));
                        prop_assert_eq!(fast.remove(range), (before - slow.len()) as u64);
                    }
                    _ => {
                        let mut other = RangeSet::new();
                        other.insert(range.clone());
                        other.insert(range.end + 3..range.end + 9);
                        fast.remove_all(other.ranges());
                        slow.retain(|number| !other.contains(*number));
                    }
                }
                prop_assert_eq!(numbers(&fast), slow.clone());
                prop_assert_eq!(fast.count(), slow.len() as u64);
                prop_assert!(fast.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    #[test]
    fn a_search_goes_on_at_the_cursor_and_wraps_around() {
        let mut set = RangeSet::new();
        assert_eq!(set.first_from(0), None);
        set.insert(0..10);
        set.insert(20..30);
        for (from, found) in [(0, 0), (4, 4), (10, 20), (12, 20), (29, 29), (30, 0)] {
            assert_eq!(set.first_from(from), Some(found), "{from}");
        }
    }
}
