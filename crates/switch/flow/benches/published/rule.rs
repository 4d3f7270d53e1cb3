//! The rules and packets of the published algorithms: IPv4 5-tuples, in the two words of a `FlowKey` that contain
//! them.

use millrace_flow::classify::Slot;
use millrace_flow::{FlowKey, Rule};

/// The two words of a key: addresses, then ports, protocol, layers present and EtherType.
pub(crate) type Packet = [u64; 2];

/// The indices of a [`Packet`]'s words in a key.
const WORDS: [usize; 2] = [6, 5];

/// The bits of the second word that indicate the headers of the packet. They follow from the fields.
const LAYERS: u64 = 0xff << 16;

/// Number of fields.
pub(crate) const FIELDS: usize = 5;

/// The fields, in the papers' order: word, shift, width.
const POSITIONS: [(usize, u32, u32); FIELDS] =
    [(0, 32, 32), (0, 0, 32), (1, 48, 16), (1, 32, 16), (1, 24, 8)];

/// The source and destination address, as indices of a field.
pub(crate) const ADDRESSES: [usize; 2] = [0, 1];

/// The values `lo..=hi` of a field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Range {
    pub(crate) lo: u32,
    pub(crate) hi: u32,
}

impl Range {
    pub(crate) fn overlaps(self, other: Range) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }

    pub(crate) fn contains(self, other: Range) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }
}

/// A rule. The rank is its priority and, in the low half, its slot plus one; zero is no rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rule5 {
    pub(crate) key: Packet,
    pub(crate) mask: Packet,
    pub(crate) rank: u64,
}

impl Rule5 {
    /// # Panics
    /// If the rule compares anything but an IPv4 5-tuple, as the benchmark would then be wrong.
    pub(crate) fn new(rule: &Rule, slot: Slot) -> Rule5 {
        let others = (0..FlowKey::WORDS).filter(|word| !WORDS.contains(word));
        let beside = others.fold(0, |seen, word| seen | rule.mask.words()[word]);
        let ether_type = (rule.key.words()[5] & 0xffff, rule.mask.words()[5] & 0xffff);
        assert!(
            beside == 0 && ether_type == (0x800, 0xffff),
            "not a 5-tuple: {rule:?}"
        );
        Rule5 {
            key: packet(&rule.key),
            mask: packet(&rule.mask.0),
            rank: limit(rule.priority.0) | (slot.index() as u64 + 1),
        }
    }

    #[inline(always)]
    pub(crate) fn matches(&self, packet: Packet) -> bool {
        ((packet[0] & self.mask[0]) ^ self.key[0]) | ((packet[1] & self.mask[1]) ^ self.key[1]) == 0
    }

    pub(crate) fn priority(&self) -> u16 {
        (self.rank >> 32) as u16
    }

    /// Returns each field's range of values, or `None` if a mask is not a prefix.
    pub(crate) fn ranges(&self) -> Option<[Range; FIELDS]> {
        let mut ranges = [Range { lo: 0, hi: 0 }; FIELDS];
        for ((word, shift, bits), range) in POSITIONS.iter().zip(&mut ranges) {
            let all = u64::MAX >> (64 - bits);
            let free = !(self.mask[*word] >> shift) & all;
            if free & (free + 1) != 0 {
                return None;
            }
            let lo = self.key[*word] >> shift & all;
            *range = Range {
                lo: lo as u32,
                hi: (lo | free) as u32,
            };
        }
        Some(ranges)
    }

    /// Returns the mask without the layers, which follow from the fields.
    pub(crate) fn field_mask(&self) -> Packet {
        [self.mask[0], self.mask[1] & !LAYERS]
    }
}

/// Returns the least rank of a rule of this priority, minus one; a search with a higher result ignores such rules.
pub(crate) fn limit(priority: u16) -> u64 {
    u64::from(priority) << 32
}

/// Returns the bits of the whole field, in their word: `(word, bits)`.
pub(crate) fn field_bits(field: usize) -> (usize, u64) {
    let (word, shift, bits) = POSITIONS[field];
    (word, u64::MAX >> (64 - bits) << shift)
}

/// The ranges of all values of the fields.
pub(crate) const WHOLE: [Range; FIELDS] = {
    let mut whole = [Range { lo: 0, hi: 0 }; FIELDS];
    let mut field = 0;
    while field < FIELDS {
        whole[field].hi = (u64::MAX >> (64 - POSITIONS[field].2)) as u32;
        field += 1;
    }
    whole
};

#[inline(always)]
pub(crate) fn packet(key: &FlowKey) -> Packet {
    WORDS.map(|word| key.words()[word])
}

/// Returns the five values of a packet.
#[inline(always)]
pub(crate) fn values(packet: Packet) -> [u32; FIELDS] {
    POSITIONS.map(|(word, shift, bits)| (packet[word] >> shift & (u64::MAX >> (64 - bits))) as u32)
}

/// The interface of the published algorithms.
pub(crate) trait PublishedClassifier {
    /// Returns the highest rank of a rule that matches the packet; zero if none matches.
    fn lookup(&self, packet: Packet) -> u64;

    fn heap_size(&self) -> usize;

    /// Returns a short description of the structure.
    fn structure(&self) -> String;

    /// Adds a rule. Returns false if the algorithm has no updates.
    fn insert(&mut self, rule: &Rule5) -> bool;

    /// Removes a rule. Returns false if it is not there, or the algorithm has no updates.
    fn remove(&mut self, rule: &Rule5) -> bool;
}

/// Rules with masks that are not prefixes, which algorithms of ranges cannot hold. They are compared one
/// after the other, highest rank first.
#[derive(Default)]
pub(crate) struct NonPrefixRules(Vec<Rule5>);

impl NonPrefixRules {
    pub(crate) fn lookup(&self, packet: Packet, best: u64) -> u64 {
        let better = self.0.iter().take_while(|rule| rule.rank > best);
        better
            .into_iter()
            .find(|rule| rule.matches(packet))
            .map_or(best, |rule| rule.rank)
    }

    pub(crate) fn insert(&mut self, rule: &Rule5) {
        let at = self.0.partition_point(|held| held.rank > rule.rank);
        self.0.insert(at, *rule);
    }

    pub(crate) fn remove(&mut self, rule: &Rule5) -> bool {
        let at = self.0.iter().position(|held| held == rule);
        at.map(|at| self.0.remove(at)).is_some()
    }

    pub(crate) fn heap_size(&self) -> usize {
        self.0.capacity() * size_of::<Rule5>()
    }
}

/// The number of rules of each priority, for structures that are searched in the order of their highest
/// priorities.
#[derive(Default)]
pub(crate) struct Priorities(std::collections::BTreeMap<u16, u32>);

impl Priorities {
    pub(crate) fn add(&mut self, rule: &Rule5) {
        *self.0.entry(rule.priority()).or_default() += 1;
    }

    pub(crate) fn remove(&mut self, rule: &Rule5) {
        if let Some(count) = self.0.get_mut(&rule.priority()) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&rule.priority());
            }
        }
    }

    /// Returns the [`limit`] of the highest priority; `None` if there is no rule.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.0.last_key_value().map(|(priority, _)| limit(*priority))
    }

    /// Returns the approximate size of a B-tree with such entries.
    pub(crate) fn heap_size(&self) -> usize {
        self.0.len() * 8
    }
}
