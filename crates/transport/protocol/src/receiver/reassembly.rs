//! Extents in progress: the record of the bytes that arrived, so that each byte is delivered once.
//!
//! The bytes are not kept here. The caller keeps a buffer for each **open group**: a group of 16 KiB with
//! some bytes present and others missing. An extent in progress takes memory for its list of ranges.
//! [`Limits`] bounds both: a sender that scatters small packets opens a group with each, and the credit
//! bounds only the bytes that arrived.

use crate::extent::{ExtentError, GROUP_SIZE, Layout};
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};

/// The extents of a session at one receiver.
#[derive(Clone, Debug)]
pub(super) struct Reassembly {
    layout: Layout,
    /// Extents with all bytes received.
    complete: RangeSet,
    /// Extents with some bytes received and others missing.
    partial: BTreeMap<u64, Partial>,
    /// Open groups of all extents.
    open_groups: u64,
    limits: Limits,
}

/// The bounds on the memory of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    /// Extents in progress.
    pub(super) extents: usize,
    /// Groups with some bytes received and others missing.
    pub(super) open_groups: u64,
    /// Ranges of an extent in progress.
    pub(super) ranges: usize,
}

/// An extent with some bytes received and others missing.
#[derive(Clone, Debug, Default)]
struct Partial {
    arrived: RangeSet,
    /// The number of bytes in `arrived`.
    bytes: u64,
    open_groups: u64,
}

/// The addresses of a packet that are new. Nearly always this is one range, which needs no heap memory.
#[derive(Clone, Debug)]
pub enum NewRanges {
    /// One range.
    One(Range<u64>),
    /// The ranges between those that arrived before.
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
    /// New bytes, perhaps fewer than the packet has. `completes` is the extent, if it is complete now.
    New {
        ranges: NewRanges,
        completes: Option<u64>,
    },
    /// All bytes arrived before.
    Duplicate,
    /// Too many extents or groups are in progress, or too many ranges of an extent.
    TooManyExtents,
}

/// The numbers of groups that a packet changes: groups get some bytes while others miss, or get their last bytes.
struct GroupChanges {
    opened: u64,
    closed: u64,
}

impl Reassembly {
    /// Returns the state of a receiver that has the extents of `have`.
    pub(super) fn new(layout: Layout, have: RangeSet, limits: Limits) -> Reassembly {
        Reassembly {
            layout,
            complete: have,
            partial: BTreeMap::new(),
            open_groups: 0,
            limits,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the extents with all bytes received.
    pub(super) fn complete(&self) -> &RangeSet {
        &self.complete
    }

    /// Returns true if every extent is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.count() == self.layout.extents()
    }

    /// Returns the number of extents in progress.
    pub(super) fn extents_in_progress(&self) -> usize {
        self.partial.len()
    }

    /// Returns the number of ranges of all extents in progress.
    pub(super) fn ranges_in_progress(&self) -> usize {
        let partial = self.partial.values();
        partial.map(|partial| partial.arrived.ranges().len()).sum()
    }

    /// Returns the number of groups with some bytes received and others missing.
    pub(super) fn open_groups(&self) -> u64 {
        self.open_groups
    }

    /// Adds the bytes of a packet. The number of ranges of the extent affects the cost only where ranges are
    /// moved in memory.
    ///
    /// # Errors
    /// If they are not within one extent of the session.
    pub(super) fn insert(&mut self, address: u64, len: u64) -> Result<Arrival, ExtentError> {
        self.layout.check(address, len)?;
        let extent = self.layout.extent_of(address);
        if self.complete.contains(extent) {
            return Ok(Arrival::Duplicate);
        }
        let packet = address..address + len;
        let partial = self.partial.get(&extent);
        let arrived = partial.map_or(&[][..], |partial| partial.arrived.ranges());
        let known = overlapping(arrived, packet.clone());
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
        let GroupChanges { opened, closed } = self.group_changes(arrived, &packet);
        let too_many_groups = opened > closed && self.open_groups + opened - closed > self.limits.open_groups;
        if too_many_groups || self.is_beyond(arrived, &packet) {
            return Ok(Arrival::TooManyExtents);
        }
        let partial = self.partial.entry(extent).or_default();
        partial.bytes += partial.arrived.insert(packet);
        partial.open_groups = partial.open_groups + opened - closed;
        self.open_groups = self.open_groups + opened - closed;
        let (start, end) = self.layout.bounds(extent);
        let whole = partial.bytes == end - start;
        if whole {
            self.partial.remove(&extent);
            self.complete.insert(extent..extent + 1);
        }
        Ok(Arrival::New {
            ranges,
            completes: whole.then_some(extent),
        })
    }

    /// Returns the numbers of groups that a packet opens and closes. `arrived` is the received ranges of its
    /// extent.
    fn group_changes(&self, arrived: &[Range<u64>], packet: &Range<u64>) -> GroupChanges {
        let (mut opened, mut closed) = (0, 0);
        for index in packet.start / GROUP_SIZE..packet.end.div_ceil(GROUP_SIZE) {
            let start = index * GROUP_SIZE;
            let group = start..start.saturating_add(GROUP_SIZE).min(self.layout.bytes());
            let was_open = !overlapping(arrived, group.clone()).is_empty() && !covers(arrived, group.clone());
            let is_open =
                !covers(arrived, group.start..packet.start) || !covers(arrived, packet.end..group.end);
            opened += u64::from(is_open && !was_open);
            closed += u64::from(was_open && !is_open);
        }
        GroupChanges { opened, closed }
    }

    /// Returns true if a packet needs an extent or a range beyond the limits. `arrived` is the received
    /// ranges of its extent.
    fn is_beyond(&self, arrived: &[Range<u64>], packet: &Range<u64>) -> bool {
        if arrived.is_empty() {
            return self.partial.len() >= self.limits.extents;
        }
        // A packet that touches a range extends it.
        let touched = packet.start.saturating_sub(1)..packet.end.saturating_add(1);
        arrived.len() >= self.limits.ranges && overlapping(arrived, touched).is_empty()
    }

    /// Discards the ranges of an extent with a wrong digest.
    pub(super) fn reject(&mut self, extent: u64) {
        self.complete.remove(extent..extent.saturating_add(1));
        if let Some(partial) = self.partial.remove(&extent) {
            self.open_groups -= partial.open_groups;
        }
    }
}

/// Returns true if all numbers of `one` are in `ranges`, which are ascending and do not touch. An inverted
/// range contains no numbers.
fn covers(ranges: &[Range<u64>], one: Range<u64>) -> bool {
    let at = ranges.partition_point(|range| range.end < one.end);
    one.is_empty() || ranges.get(at).is_some_and(|range| range.start <= one.start)
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
    use proptest::prelude::*;

    const LIMITS: Limits = Limits {
        extents: 8,
        open_groups: 8,
        ranges: 8,
    };

    fn reassembly(limits: Limits) -> Reassembly {
        let layout = Layout::new((2 << 20) + 10, ExtentSize::Small).unwrap();
        Reassembly::new(layout, RangeSet::new(), limits)
    }

    #[test]
    fn each_byte_is_new_once_and_the_last_one_completes_its_extent() {
        let mut reassembly = reassembly(LIMITS);
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
        assert_eq!(
            (reassembly.extents_in_progress(), reassembly.ranges_in_progress()),
            (2, 2)
        );
    }

    #[test]
    fn a_sender_that_scatters_its_packets_over_extents_does_not_fill_memory() {
        let mut reassembly = reassembly(Limits { extents: 1, ..LIMITS });
        assert!(matches!(reassembly.insert(0, 1), Ok(Arrival::New { .. })));
        assert_eq!(reassembly.insert(1 << 20, 1), Ok(Arrival::TooManyExtents));
        assert!(matches!(reassembly.insert(1, 1), Ok(Arrival::New { .. })));
    }

    #[test]
    fn a_sender_that_scatters_its_packets_over_groups_opens_only_so_many_until_some_are_whole() {
        let mut reassembly = reassembly(Limits {
            open_groups: 2,
            ..LIMITS
        });
        let is_new = |arrival| matches!(arrival, Ok(Arrival::New { .. }));
        assert!(is_new(reassembly.insert(0, 10)));
        assert!(is_new(reassembly.insert(GROUP_SIZE, 10)));
        assert_eq!(reassembly.insert(2 * GROUP_SIZE, 10), Ok(Arrival::TooManyExtents));
        assert_eq!(
            reassembly.insert(2 * GROUP_SIZE - 10, 20),
            Ok(Arrival::TooManyExtents)
        );
        assert_eq!(reassembly.insert(0, 5), Ok(Arrival::Duplicate));
        assert!(
            is_new(reassembly.insert(2 * GROUP_SIZE, GROUP_SIZE)),
            "a whole group is not open"
        );
        assert!(is_new(reassembly.insert(10, GROUP_SIZE - 20)));
        assert_eq!(reassembly.open_groups(), 2);
        assert!(is_new(reassembly.insert(GROUP_SIZE - 10, 10)));
        assert_eq!(reassembly.open_groups(), 1);
        assert!(is_new(reassembly.insert(3 * GROUP_SIZE, 10)));
        assert!(is_new(reassembly.insert(GROUP_SIZE + 10, GROUP_SIZE - 10)));
        assert!(
            is_new(reassembly.insert(2 << 20, 10)),
            "the last group has 10 bytes"
        );
        assert_eq!(reassembly.open_groups(), 1);
        reassembly.reject(0);
        assert_eq!(reassembly.open_groups(), 0);
    }

    #[test]
    fn an_extent_has_only_so_many_ranges_and_packets_that_extend_one_still_arrive() {
        let mut reassembly = reassembly(Limits { ranges: 2, ..LIMITS });
        let is_new = |arrival| matches!(arrival, Ok(Arrival::New { .. }));
        assert!(is_new(reassembly.insert(10, 10)));
        assert!(is_new(reassembly.insert(30, 10)));
        assert_eq!(reassembly.insert(50, 10), Ok(Arrival::TooManyExtents));
        assert_eq!(reassembly.insert(0, 9), Ok(Arrival::TooManyExtents));
        assert!(is_new(reassembly.insert(0, 10)));
        assert!(is_new(reassembly.insert(40, 5)));
        assert!(is_new(reassembly.insert(20, 10)));
        assert!(is_new(reassembly.insert(50, 10)));
        assert_eq!(
            (reassembly.extents_in_progress(), reassembly.ranges_in_progress()),
            (1, 2)
        );
    }

    proptest! {
        #[test]
        fn open_groups_and_whole_extents_are_those_of_a_list_of_units(
            packets in prop::collection::vec((0..112_u64, 1..48_u64), 1..60)
        ) {
            const UNIT: u64 = 1 << 10;
            const GROUP: usize = (GROUP_SIZE / UNIT) as usize;
            // The first extent has 64 groups, the second one group and a unit.
            let units = 65 * GROUP + 1;
            let layout = Layout::new(units as u64 * UNIT, ExtentSize::Small).unwrap();
            let limits = Limits { extents: 2, open_groups: 5, ranges: 9 };
            let mut reassembly = Reassembly::new(layout, RangeSet::new(), limits);
            let mut there = vec![false; units];
            for (from, len) in packets {
                let start = 60 * GROUP as u64 + from;
                let arrival = reassembly.insert(start * UNIT, len * UNIT);
                let Ok(Arrival::New { ranges, completes }) = arrival else { continue };
                for range in &*ranges {
                    for at in range.start / UNIT..range.end / UNIT {
                        prop_assert!(!std::mem::replace(&mut there[at as usize], true));
                    }
                }
                let (first, second) = there.split_at(64 * GROUP);
                let extent = if start < 64 * GROUP as u64 { first } else { second };
                prop_assert_eq!(completes.is_some(), extent.iter().all(|there| *there));
                let groups = there.chunks(GROUP);
                let open = groups.filter(|group| group.iter().any(|there| *there != group[0])).count() as u64;
                prop_assert_eq!(reassembly.open_groups(), open);
                prop_assert!(open <= 5);
            }
        }
    }
}
