//! Extents as they fill: which bytes arrived, so that each is delivered once.
//!
//! Bytes themselves are not kept: they go to the caller's file at once. An extent in progress costs its list of ranges.

use crate::extent::{ExtentError, Layout};
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

/// The extents of a session, as one receiver has them.
#[derive(Clone, Debug)]
pub(super) struct Reassembly {
    layout: Layout,
    /// Extents whose bytes all arrived.
    complete: RangeSet,
    /// Bytes that arrived of the others.
    partial: BTreeMap<u64, RangeSet>,
    partial_max: usize,
}

/// The addresses of a packet that are new: nearly always all of them, which costs no memory of its own.
#[derive(Clone, Debug)]
pub enum NewRanges {
    /// One range.
    One(Range<u64>),
    /// The ranges between those that were known.
    Many(Vec<Range<u64>>),
}

impl Deref for NewRanges {
    type Target = [Range<u64>];

    fn deref(&self) -> &[Range<u64>] {
        match self {
            NewRanges::One(range) => std::slice::from_ref(range),
            NewRanges::Many(ranges) => ranges,
        }
    }
}

impl PartialEq for NewRanges {
    fn eq(&self, other: &NewRanges) -> bool {
        **self == **other
    }
}

impl Eq for NewRanges {}

/// The result of a packet's arrival.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// These bytes, which may be fewer than the packet's; `completes`: the extent, if it is complete now.
    New {
        ranges: NewRanges,
        completes: Option<u64>,
    },
    /// All bytes were there.
    Duplicate,
    /// Too many extents are in progress.
    TooManyExtents,
}

impl Reassembly {
    /// Returns the state of a receiver that has the extents of `have`, and works on `partial_max` extents at once.
    pub(super) fn new(layout: Layout, have: RangeSet, partial_max: usize) -> Reassembly {
        Reassembly {
            layout,
            complete: have,
            partial: BTreeMap::new(),
            partial_max,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the extents whose bytes all arrived.
    pub(super) fn complete(&self) -> &RangeSet {
        &self.complete
    }

    /// Returns true if every extent is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.count() == self.layout.extents()
    }

    /// Returns how many extents are in progress, and how many ranges they have.
    pub(super) fn in_progress(&self) -> (usize, usize) {
        let ranges = self.partial.values().map(|set| set.ranges().len()).sum();
        (self.partial.len(), ranges)
    }

    /// Adds the bytes of a packet.
    ///
    /// # Errors
    /// If they are not within one extent of the session.
    pub(super) fn insert(&mut self, address: u64, len: u64) -> Result<Arrival, ExtentError> {
        self.layout.check(address, len)?;
        let extent = self.layout.extent_of(address);
        if self.complete.contains(extent) {
            return Ok(Arrival::Duplicate);
        }
        let full = self.partial.len() >= self.partial_max;
        if full && !self.partial.contains_key(&extent) {
            return Ok(Arrival::TooManyExtents);
        }
        let set = self.partial.entry(extent).or_default();
        let packet = address..address + len;
        let known = overlapping(set.ranges(), packet.clone());
        let ranges = if known.is_empty() {
            NewRanges::One(packet.clone())
        } else {
            let mut missing = RangeSet::new();
            missing.insert(packet.clone());
            missing.remove_all(known);
            if missing.is_empty() {
                return Ok(Arrival::Duplicate);
            }
            NewRanges::Many(missing.ranges().to_vec())
        };
        set.insert(packet);
        let (start, end) = self.layout.bounds(extent);
        let whole = set.count() == end - start;
        if whole {
            self.partial.remove(&extent);
            self.complete.insert(extent..extent + 1);
        }
        Ok(Arrival::New {
            ranges,
            completes: whole.then_some(extent),
        })
    }

    /// Forgets an extent whose digest was wrong.
    pub(super) fn reject(&mut self, extent: u64) {
        self.complete.remove(extent..extent.saturating_add(1));
        self.partial.remove(&extent);
    }
}

/// Returns the ascending `ranges` that overlap `one`.
fn overlapping(ranges: &[Range<u64>], one: Range<u64>) -> &[Range<u64>] {
    let from = ranges.partition_point(|range| range.end <= one.start);
    let to = ranges.partition_point(|range| range.start < one.end);
    ranges.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::ExtentSize;

    fn reassembly(partial_max: usize) -> Reassembly {
        let layout = Layout::new((2 << 20) + 10, ExtentSize::Small).unwrap();
        Reassembly::new(layout, RangeSet::new(), partial_max)
    }

    #[test]
    fn each_byte_is_new_once_and_the_last_one_completes_its_extent() {
        let mut reassembly = reassembly(8);
        let new = |ranges: Vec<Range<u64>>, completes| {
            let ranges = NewRanges::Many(ranges);
            Ok(Arrival::New { ranges, completes })
        };
        assert_eq!(reassembly.insert(100, 50), new(vec![100..150], None));
        assert_eq!(reassembly.insert(90, 70), new(vec![90..100, 150..160], None));
        assert_eq!(reassembly.insert(95, 10), Ok(Arrival::Duplicate));
        assert_eq!(
            reassembly.insert(2 << 20, 10),
            new(vec![2 << 20..(2 << 20) + 10], Some(2))
        );
        assert_eq!(reassembly.insert(2 << 20, 10), Ok(Arrival::Duplicate));
        reassembly.reject(2);
        assert_eq!(
            reassembly.insert((2 << 20) + 1, 1),
            new(vec![(2 << 20) + 1..(2 << 20) + 2], None)
        );
        assert!(reassembly.insert((2 << 20) + 5, 6).is_err());
        assert_eq!(reassembly.in_progress(), (2, 2));
    }

    #[test]
    fn a_sender_that_scatters_its_packets_over_extents_does_not_fill_memory() {
        let mut reassembly = reassembly(1);
        assert!(matches!(reassembly.insert(0, 1), Ok(Arrival::New { .. })));
        assert_eq!(reassembly.insert(1 << 20, 1), Ok(Arrival::TooManyExtents));
        assert!(matches!(reassembly.insert(1, 1), Ok(Arrival::New { .. })));
    }
}
