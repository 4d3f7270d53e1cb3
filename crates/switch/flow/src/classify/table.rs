//! A hash table for bursts of lookups, which compares tags before it reads entries.
//!
//! ```text
//! hash bits  63            52       39 32 31         0
//!            directory index |  -  | tag | home group
//!
//! group of tags (one word)   | overflow | tag 6 | ... | tag 1 | tag 0 |
//! ```
//! Groups have seven entries. The tags of a group fill one word, so that one load and a few instructions find the
//! candidates among seven entries, of which there are usually none. The tags of ten thousand entries fit the
//! first-level cache, and those of a million the second-level cache. A hit therefore costs one access to distant
//! memory, and a miss none.
//!
//! A full group stores its next entry in another group, and counts it in its overflow byte. A lookup continues only if
//! that byte is not zero, and a removal decrements it, so that there are no tombstones. (Facebook's F14 tables use the
//! same scheme.)
//!
//! If entries with different keys may have the same hash, as in a merged tuple, the tag says little. A [`Hint`] beside
//! the tag then has the required values of some bits and the class of the priority, which rule out most wrong entries.
//!
//! Groups are in segments. A segment grows by a quarter until it would have twice [`SEGMENT`] groups, and is then
//! split in two (extendible hashing; Fagin et al., 1979). Two small segments are joined. An update therefore moves at
//! most one segment's entries, two of three lanes are in use, and memory is released.

mod hint;

use self::hint::Hints;
pub(super) use self::hint::{Hint, WINDOWS};
use super::lanes::{LANES, candidates, lane, tag};

/// The number of groups of a segment after a split.
const SEGMENT: usize = 4096;

/// Sizes between [`SEGMENT`] groups and twice as many. They are primes, so that a search with a step of up to 511
/// groups reaches every group. (All other sizes are powers of two, and the steps odd.)
const BETWEEN: [usize; 3] = [5119, 6143, 7159];

/// The first power of two above the sizes in [`BETWEEN`].
const BEYOND: usize = 2 * SEGMENT;

/// The maximum number of directory bits of a hash.
const MAX_DEPTH: u32 = 12;

/// Position of the overflow count in a word of tags.
pub(super) const OVERFLOW_SHIFT: u32 = 56;

/// The lowest bit of the overflow count.
const OVERFLOW: u64 = 1 << OVERFLOW_SHIFT;

/// Returns true if entries with this home group are in other groups.
#[inline(always)]
pub(super) const fn overflows(tags: u64) -> bool {
    tags >= OVERFLOW
}

/// Returns the next larger size.
fn larger(groups: usize) -> usize {
    match groups {
        SEGMENT..BEYOND => BETWEEN.into_iter().find(|size| *size > groups).unwrap_or(BEYOND),
        _ => groups * 2,
    }
}

/// Returns the next smaller size.
fn smaller(groups: usize) -> usize {
    if (SEGMENT + 1..=BEYOND).contains(&groups) {
        return BETWEEN
            .into_iter()
            .rfind(|size| *size < groups)
            .unwrap_or(SEGMENT);
    }
    groups / 2
}

/// A segment: groups with their entries.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// One word of tags for each group.
    pub(super) tags: Box<[u64]>,
    /// Seven entries for each group.
    pub(super) entries: Box<[u64]>,
    /// The hints of each group, or empty if entries have none.
    pub(super) hints: Box<[Hints]>,
    len: usize,
    /// The number of directory bits that all entries share.
    depth: u32,
}

/// The layout of entries.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The number of words of an entry.
    stride: usize,
    hinted: bool,
}

impl Segment {
    fn new(groups: usize, shape: Shape, depth: u32) -> Segment {
        let hints = if shape.hinted { groups } else { 0 };
        Segment {
            tags: vec![0; groups].into_boxed_slice(),
            entries: vec![0; groups * LANES * shape.stride].into_boxed_slice(),
            hints: vec![Hints::default(); hints].into_boxed_slice(),
            len: 0,
            depth,
        }
    }

    /// Returns the home group, where a search begins.
    #[inline(always)]
    pub(super) fn home_group(&self, hash: u64) -> usize {
        // The low half of the hash is a fraction of the number of groups (Lemire, "Fast Random Integer Generation in
        // an Interval", 2019). Both factors have 32 bits, so that one cheap multiplication is enough.
        ((u64::from(hash as u32) * u64::from(self.tags.len() as u32)) >> 32) as usize
    }

    /// Returns the group where a search continues.
    #[inline(always)]
    pub(super) fn next(&self, group: usize, tag: u64) -> usize {
        (group + 2 * tag as usize + 1) % self.tags.len()
    }

    /// Returns the maximum number of entries before the segment must grow.
    fn limit(&self) -> usize {
        match self.tags.len() {
            1 => LANES,
            groups if self.hints.is_empty() => groups * LANES * 13 / 16,
            // Entries with equal hashes fill some groups, so the limit is lower.
            groups => groups * LANES / 2,
        }
    }

    fn put(&mut self, (hash, hint): (u64, Hint), entry: &[u64]) {
        let (tag, mut group) = (tag(hash), self.home_group(hash));
        loop {
            let free = candidates(self.tags[group], 0);
            if free != 0 {
                let lane = lane(free);
                self.tags[group] |= tag << (8 * lane);
                let at = (group * LANES + lane) * entry.len();
                self.entries[at..at + entry.len()].copy_from_slice(entry);
                if let Some(hints) = self.hints.get_mut(group) {
                    hints.set(lane, hint);
                }
                self.len += 1;
                return;
            }
            // A count of 255 stays permanently, because it cannot be decremented correctly.
            if self.tags[group] < 255 * OVERFLOW {
                self.tags[group] += OVERFLOW;
            }
            group = self.next(group, tag);
        }
    }

    fn clear(&mut self, hash: u64, at: EntryPosition) {
        let tag = tag(hash);
        let mut group = self.home_group(hash);
        while group != at.group {
            if self.tags[group] < 255 * OVERFLOW {
                self.tags[group] -= OVERFLOW;
            }
            group = self.next(group, tag);
        }
        self.tags[at.group] &= !(0xff << (8 * at.lane));
        self.len -= 1;
    }

    /// Returns a segment with the same entries in `groups` groups.
    fn resized(&self, groups: usize, shape: Shape, digest: &impl Fn(&[u64]) -> (u64, Hint)) -> Segment {
        let mut new = Segment::new(groups, shape, self.depth);
        self.each(shape.stride, |entry| new.put(digest(entry), entry));
        new
    }

    fn each(&self, stride: usize, mut visit: impl FnMut(&[u64])) {
        for (group, tags) in self.tags.iter().enumerate() {
            for lane in (0..LANES).filter(|lane| tags >> (8 * lane) & 0xff != 0) {
                let at = (group * LANES + lane) * stride;
                visit(&self.entries[at..at + stride]);
            }
        }
    }
}

/// The position of an entry, until the next update.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPosition {
    segment: usize,
    group: usize,
    lane: usize,
}

/// Entries of `stride` words each, found by hash. Several entries may have the same hash.
#[derive(Clone, Debug)]
pub(super) struct Table {
    shape: Shape,
    len: usize,
    /// The binary logarithm of the directory's length.
    depth: u32,
    directory: Vec<u16>,
    segments: Vec<Segment>,
}

impl Table {
    /// Returns an empty table. Each entry will have `stride` words, and a hint if `hinted`.
    pub(super) fn new(stride: usize, hinted: bool) -> Table {
        let shape = Shape { stride, hinted };
        Table {
            shape,
            len: 0,
            depth: 0,
            directory: vec![0],
            segments: vec![Segment::new(1, shape, 0)],
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the only segment, if there is exactly one.
    #[inline(always)]
    pub(super) fn only_segment(&self) -> Option<&Segment> {
        match &*self.segments {
            [only] => Some(only),
            _ => None,
        }
    }

    #[inline(always)]
    fn directory_index(&self, hash: u64) -> usize {
        (hash >> 52) as usize & (self.directory.len() - 1)
    }

    /// Returns the number of the segment that has every entry with this hash.
    #[inline(always)]
    pub(super) fn segment_number(&self, hash: u64) -> u16 {
        self.directory[self.directory_index(hash)]
    }

    /// Returns the segment with this number.
    #[inline(always)]
    pub(super) fn segment(&self, number: u16) -> &Segment {
        &self.segments[usize::from(number)]
    }

    /// Calls `found` with the entries whose hash may be `hash` until it returns true.
    pub(super) fn find(&self, hash: u64, mut found: impl FnMut(&[u64]) -> bool) -> Option<EntryPosition> {
        let id = usize::from(self.directory[self.directory_index(hash)]);
        let segment = &self.segments[id];
        let (tag, mut group) = (tag(hash), segment.home_group(hash));
        for _ in 0..segment.tags.len() {
            let mut candidates = candidates(segment.tags[group], tag);
            while candidates != 0 {
                let lane = lane(candidates);
                let at = (group * LANES + lane) * self.shape.stride;
                if found(&segment.entries[at..at + self.shape.stride]) {
                    return Some(EntryPosition {
                        segment: id,
                        group,
                        lane,
                    });
                }
                candidates &= candidates - 1;
            }
            if !overflows(segment.tags[group]) {
                return None;
            }
            group = segment.next(group, tag);
        }
        None
    }

    /// Changes the first word of an entry, on which its hash must not depend, and the class of its hint.
    pub(super) fn set_first(&mut self, at: EntryPosition, first: u64, class: u8) {
        let segment = &mut self.segments[at.segment];
        segment.entries[(at.group * LANES + at.lane) * self.shape.stride] = first;
        if let Some(hints) = segment.hints.get_mut(at.group) {
            hints.set_class(at.lane, class);
        }
    }

    /// Adds an entry. `digest` returns the hash and the hint of any entry.
    pub(super) fn insert(&mut self, entry: &[u64], digest: impl Fn(&[u64]) -> (u64, Hint)) {
        let (hash, hint) = digest(entry);
        loop {
            let id = usize::from(self.directory[self.directory_index(hash)]);
            let segment = &mut self.segments[id];
            if segment.len < segment.limit() {
                segment.put((hash, hint), entry);
                self.len += 1;
                return;
            }
            self.grow(id, &digest);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, hash: u64, at: EntryPosition, digest: impl Fn(&[u64]) -> (u64, Hint)) {
        let index = self.directory_index(hash);
        let id = usize::from(self.directory[index]);
        self.segments[id].clear(hash, at);
        self.len -= 1;
        self.shrink(index, id, &digest);
    }

    /// Calls `visit` with every entry.
    pub(super) fn each(&self, mut visit: impl FnMut(&[u64])) {
        for segment in &self.segments {
            segment.each(self.shape.stride, &mut visit);
        }
    }

    /// Returns the number of entries outside of their home group.
    #[cfg(test)]
    pub(super) fn overflowed(&self, digest: impl Fn(&[u64]) -> (u64, Hint)) -> usize {
        let mut in_home_group = 0;
        self.each(|entry| {
            let hash = digest(entry).0;
            let segment = self.segment(self.segment_number(hash));
            let group = segment.home_group(hash);
            let lanes = (0..LANES).filter(|lane| segment.tags[group] >> (8 * lane) & 0xff != 0);
            let held = |lane| &segment.entries[(group * LANES + lane) * self.shape.stride..][..entry.len()];
            in_home_group += usize::from(lanes.into_iter().any(|lane| held(lane) == entry));
        });
        self.len - in_home_group
    }

    fn grow(&mut self, id: usize, digest: &impl Fn(&[u64]) -> (u64, Hint)) {
        let (groups, depth) = (self.segments[id].tags.len(), self.segments[id].depth);
        let more = larger(groups);
        if more < BEYOND || depth == MAX_DEPTH {
            self.resize(id, more, digest);
            return;
        }
        let mut halves = [(); 2].map(|()| Segment::new(SEGMENT, self.shape, depth + 1));
        self.segments[id].each(self.shape.stride, |entry| {
            let digest_of = digest(entry);
            let half = &mut halves[(digest_of.0 >> (52 + depth)) as usize & 1];
            // If many entries have the same hash, all of them may be in one half.
            if half.len >= half.limit() {
                *half = half.resized(larger(half.tags.len()), self.shape, digest);
            }
            half.put(digest_of, entry);
        });
        if depth == self.depth {
            self.directory.extend_from_within(..);
            self.depth += 1;
        }
        let other = self.segments.len() as u16;
        for (index, held) in self.directory.iter_mut().enumerate() {
            if usize::from(*held) == id && index >> depth & 1 == 1 {
                *held = other;
            }
        }
        let [low, high] = halves;
        self.segments[id] = low;
        self.segments.push(high);
    }

    fn shrink(&mut self, index: usize, id: usize, digest: &impl Fn(&[u64]) -> (u64, Hint)) {
        let segment = &self.segments[id];
        let (groups, depth) = (segment.tags.len(), segment.depth);
        let is_small = segment.len * 5 < groups * LANES;
        if groups > 1 && is_small && (depth == 0 || groups > SEGMENT) {
            self.resize(id, smaller(groups), digest);
            return;
        }
        if depth == 0 {
            return;
        }
        let buddy = usize::from(self.directory[index ^ 1 << (depth - 1)]);
        let other = &self.segments[buddy];
        let is_one_enough = (segment.len + other.len) * 5 < SEGMENT * LANES * 2;
        if !is_one_enough || other.depth != depth {
            return;
        }
        let mut joined = Segment::new(SEGMENT, self.shape, depth - 1);
        segment.each(self.shape.stride, |entry| joined.put(digest(entry), entry));
        other.each(self.shape.stride, |entry| joined.put(digest(entry), entry));
        self.segments[id] = joined;
        self.segments.swap_remove(buddy);
        let moved = self.segments.len();
        for held in &mut self.directory {
            if usize::from(*held) == buddy {
                *held = id as u16;
            }
            if usize::from(*held) == moved {
                *held = buddy as u16;
            }
        }
        while self.depth > 0 && self.segments.iter().all(|segment| segment.depth < self.depth) {
            self.depth -= 1;
            self.directory.truncate(1 << self.depth);
        }
        self.directory.shrink_to_fit();
        self.segments.shrink_to(self.segments.len() * 2);
    }

    fn resize(&mut self, id: usize, groups: usize, digest: &impl Fn(&[u64]) -> (u64, Hint)) {
        self.segments[id] = self.segments[id].resized(groups, self.shape, digest);
    }

    /// Returns the size in bytes of the heap memory in use.
    pub(super) fn heap_size(&self) -> usize {
        let words: usize = self
            .segments
            .iter()
            .map(|segment| segment.tags.len() + segment.entries.len() + 8 * segment.hints.len())
            .sum();
        words * 8 + self.directory.capacity() * 2 + self.segments.capacity() * size_of::<Segment>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::split_mix::next as split_mix;

    fn hash_of(entry: &[u64]) -> u64 {
        split_mix(&mut entry[0].clone())
    }

    fn digest(entry: &[u64]) -> (u64, Hint) {
        (hash_of(entry), Hint::default())
    }

    fn holds(table: &Table, key: u64) -> bool {
        table.find(hash_of(&[key]), |entry| entry[0] == key).is_some()
    }

    #[test]
    fn a_table_finds_all_it_holds_while_it_grows_and_shrinks_and_gives_memory_back() {
        let mut table = Table::new(2, false);
        let empty = table.heap_size();
        const COUNT: u64 = 100_000;
        for key in 0..COUNT {
            table.insert(&[key, !key], digest);
            assert!(holds(&table, key / 2));
        }
        assert!((0..COUNT).all(|key| holds(&table, key)) && !holds(&table, COUNT));
        assert!(table.segments.len() >= 4 && table.len() == COUNT as usize);
        let full = table.heap_size();
        assert!(full < COUNT as usize * (16 + 2) * 2);
        for key in 0..COUNT {
            let hash = hash_of(&[key]);
            let at = table.find(hash, |entry| entry[0] == key).unwrap();
            table.remove(hash, at, digest);
            assert!(!holds(&table, key) && (key + 1 == COUNT || holds(&table, COUNT - 1)));
        }
        assert_eq!((table.len(), table.segments.len(), table.depth), (0, 1, 0));
        assert!(table.heap_size() < empty + 1000);
        assert_eq!(table.segments[0].tags[0] >> 56, 0);
    }

    #[test]
    fn two_lanes_of_three_are_in_use_however_many_entries_there_are() {
        let mut table = Table::new(2, false);
        let mut least: f64 = 1.0;
        for key in 0..300_000 {
            table.insert(&[key, !key], digest);
            if key >= 40_000 && key % 1000 == 0 {
                let lanes: usize = table.segments.iter().map(|one| one.tags.len() * LANES).sum();
                least = least.min(table.len() as f64 / lanes as f64);
            }
        }
        // All segments are split at about the same time, and have the lowest load then.
        assert!(least > 0.6, "{least}");
    }

    #[test]
    fn a_search_that_goes_on_comes_to_every_group_whatever_the_size() {
        for groups in [1, 2, 64, SEGMENT].into_iter().chain(BETWEEN).chain([BEYOND]) {
            let segment = Segment::new(
                groups,
                Shape {
                    stride: 1,
                    hinted: false,
                },
                0,
            );
            for tag in [1, 2, 77, 255] {
                let mut seen = vec![false; groups];
                let mut group = 0;
                for _ in 0..groups {
                    seen[group] = true;
                    group = segment.next(group, tag);
                }
                assert!(seen.into_iter().all(|seen| seen), "{groups} groups, tag {tag}");
            }
        }
    }

    #[test]
    fn many_entries_with_one_hash_are_split_without_end() {
        let same = |entry: &[u64]| ((entry[0] % 2) << 60 | 7 << 32, Hint::default());
        let mut table = Table::new(1, true);
        const COUNT: u64 = 30_000;
        (0..COUNT).for_each(|key| table.insert(&[2 * key], same));
        assert_eq!(table.len(), COUNT as usize);
        assert!(table.find(7 << 32, |entry| entry[0] == 2 * (COUNT - 1)).is_some());
    }

    #[test]
    fn many_entries_with_one_hash_are_all_found_and_removed() {
        let digest = |entry: &[u64]| {
            let hash = if entry[0] < 1000 { 7 } else { entry[0] % 3 * 256 };
            (hash << 32, Hint::default())
        };
        let mut table = Table::new(1, true);
        for key in 0..100 {
            table.insert(&[key], digest);
            (0..3).for_each(|other| table.insert(&[1000 + 3 * key + other], digest));
        }
        for key in (0..100).rev() {
            let at = table.find(7 << 32, |entry| entry[0] == key).unwrap();
            table.remove(7 << 32, at, digest);
            assert!(table.find(7 << 32, |entry| entry[0] == key).is_none());
        }
        assert_eq!(table.len(), 300);
    }

    #[test]
    fn a_tag_is_found_in_any_lane_and_a_free_lane_is_the_lowest() {
        for at in 0..LANES {
            let tags = 0xff00_0000_0000_0000 | 0x42 << (8 * at);
            assert_eq!(candidates(tags, 0x42), 0x80 << (8 * at));
            assert_eq!(lane(candidates(tags, 0)), usize::from(at == 0));
            assert!(overflows(tags));
        }
    }
}
