//! Rules over payloads that are found without a search: by the size or a port of the packet, or by bytes at a fixed place.
//!
//! Patterns of one to three bytes occur everywhere, and a search that includes them stops at every other line of text. Most
//! rules with such a pattern or with none ask for one size (`dsize:8`), a few ports (`-> any 3306`), or bytes at a fixed place
//! (`content:"|16 03|"; depth:2`), each of which is a look-up for each packet.
//!
//! ```text
//!  size of the payload ─┐
//!  ports of the packet ─┴─▶ bitmap of numbers ──▶ entries of a number ─┐
//!  byte at an offset ────────────────────────────▶ entries of a byte ──┴─▶ compare four bytes at a place ──▶ rule
//! ```

use millrace_ips_rules::options::number::{Comparison, NumberField};

use super::program::{ContentTest, Endpoint, Operand, Operation, PacketTest, Rule};
use super::subject::Subject;
use crate::packet::Packet;

/// Largest size of a pattern for which a rule is found without a search, if it can be.
const SHORT: usize = 3;
/// Largest number of ports of a rule that is found by its ports.
const FEW_PORTS: usize = 2048;
/// Largest offset of bytes at a fixed place.
const LAST_PLACE: u32 = 256;
/// Words of a bitmap of 16-bit numbers.
const WORDS: usize = 1 << (16 - 6);

/// Bytes that must be at an offset: of the packet, or of one of the parts of a stream that the rule inspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    offset: u32,
    /// Up to four bytes, the first in the low bits; in lower case if case does not matter.
    bytes: u32,
    /// The bits of `bytes` that are compared.
    mask: u32,
    /// True if ASCII letters match in upper and lower case.
    nocase: bool,
}

impl Place {
    /// Returns the bytes that a rule asks for at a fixed place; those with the most bytes, if there are several.
    fn of(rule: &Rule) -> Option<Place> {
        let contents = rule.payload.iter().filter_map(|operation| match operation {
            Operation::Content(content) => Place::of_content(content),
            _ => None,
        });
        contents.max_by_key(|place| place.mask.count_ones())
    }

    fn of_content(content: &ContentTest) -> Option<Place> {
        let size = content.pattern.len();
        let Operand::Number(offset) = content.offset.unwrap_or(Operand::Number(0)) else {
            return None;
        };
        let is_fixed = content.depth == Some(Operand::Number(size as i64));
        if !is_fixed || content.is_negated || content.is_relative() {
            return None;
        }
        let offset = u32::try_from(offset)
            .ok()
            .filter(|offset| *offset <= LAST_PLACE)?;
        let mut bytes = [0; 4];
        let mut mask = [0; 4];
        for (at, byte) in content.pattern.iter().take(4).enumerate() {
            (bytes[at], mask[at]) = (*byte, u8::MAX);
        }
        Some(Place {
            offset,
            bytes: u32::from_le_bytes(bytes),
            mask: u32::from_le_bytes(mask),
            nocase: content.nocase,
        })
    }

    /// Returns true if the bytes are at the place in one of the subjects.
    #[inline]
    fn is_in(self, subjects: &[Subject<'_>]) -> bool {
        subjects.iter().any(|subject| self.is_at(subject))
    }

    #[inline]
    fn is_at(self, subject: &Subject<'_>) -> bool {
        // Bytes in front of the subject are gone.
        let Some(at) = u64::from(self.offset).checked_sub(subject.offset) else {
            return false;
        };
        let found = subject.bytes.get(at as usize..).unwrap_or_default();
        let mut word = [0; 4];
        let size = found.len().min(4);
        word[..size].copy_from_slice(&found[..size]);
        if self.nocase {
            word.make_ascii_lowercase();
        }
        (u32::from_le_bytes(word) ^ self.bytes) & self.mask == 0
    }
}

/// A rule, and the bytes that it asks for at a fixed place.
#[derive(Debug, Clone, Copy)]
struct Entry {
    rule: u32,
    place: Option<Place>,
}

/// Rules by a number that they ask for: a port, or the size of a payload.
#[derive(Debug, Default)]
struct ByNumber {
    /// A bit for each number that has a rule; empty if none has.
    bitmap: Vec<u64>,
    /// Sorted by number.
    entries: Vec<(u16, Entry)>,
}

impl ByNumber {
    fn add(&mut self, numbers: impl Iterator<Item = u16>, entry: Entry) {
        self.bitmap.resize(WORDS, 0);
        for number in numbers {
            self.bitmap[usize::from(number >> 6)] |= 1 << (number & 63);
            self.entries.push((number, entry));
        }
    }

    #[inline]
    fn find(&self, number: u16) -> &[(u16, Entry)] {
        let word = self.bitmap.get(usize::from(number >> 6));
        if word.is_none_or(|word| word >> (number & 63) & 1 == 0) {
            return &[];
        }
        let first = self.entries.partition_point(|(other, _)| *other < number);
        let size = self.entries[first..].partition_point(|(other, _)| *other == number);
        &self.entries[first..first + size]
    }
}

/// The rules for bytes at one offset.
#[derive(Debug)]
struct OfOffset {
    offset: u32,
    /// The entries with first byte `n` are `entries[starts[n]..starts[n + 1]]`.
    starts: Box<[u32; 257]>,
    entries: Vec<Entry>,
}

impl OfOffset {
    fn new<'a>(offset: u32, places: impl Iterator<Item = &'a (Place, u32)>) -> OfOffset {
        let mut entries: Vec<(u8, Entry)> = Vec::new();
        for (place, rule) in places {
            let entry = Entry {
                rule: *rule,
                place: Some(*place),
            };
            let [first, ..] = place.bytes.to_le_bytes();
            entries.push((first, entry));
            if place.nocase && first.is_ascii_lowercase() {
                entries.push((first.to_ascii_uppercase(), entry));
            }
        }
        entries.sort_by_key(|(first, entry)| (*first, entry.rule));
        let mut starts = Box::new([0; 257]);
        for (byte, start) in starts.iter_mut().enumerate() {
            *start = entries.partition_point(|(first, _)| usize::from(*first) < byte) as u32;
        }
        OfOffset {
            offset,
            starts,
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        }
    }

    #[inline]
    fn find(&self, subject: &Subject<'_>) -> &[Entry] {
        let at = u64::from(self.offset).checked_sub(subject.offset);
        match at.and_then(|at| subject.bytes.get(at as usize)) {
            Some(byte) => {
                let byte = usize::from(*byte);
                &self.entries[self.starts[byte] as usize..self.starts[byte + 1] as usize]
            }
            None => &[],
        }
    }
}

/// The rules of a group that are found without a search.
#[derive(Debug, Default)]
pub(super) struct Direct {
    sizes: ByNumber,
    /// By the ports of sender and receiver.
    ports: [ByNumber; 2],
    offsets: Vec<OfOffset>,
}

impl Direct {
    /// Calls `hit` with each rule that may match a packet, whose payload and parts of whose stream are the subjects. One rule may be
    /// named several times.
    #[inline]
    pub(super) fn find(&self, packet: &Packet<'_>, subjects: &[Subject<'_>], hit: &mut dyn FnMut(u32)) {
        let size = u16::try_from(packet.payload.len()).ok();
        let (source, destination) = packet.ports.unzip();
        let by_number = [&self.sizes, &self.ports[0], &self.ports[1]];
        for (numbers, number) in by_number.into_iter().zip([size, source, destination]) {
            for (_, entry) in number.map_or(&[][..], |number| numbers.find(number)) {
                if entry.place.is_none_or(|place| place.is_in(subjects)) {
                    hit(entry.rule);
                }
            }
        }
        for of_offset in &self.offsets {
            for subject in subjects {
                for entry in of_offset.find(subject) {
                    if entry.place.is_none_or(|place| place.is_at(subject)) {
                        hit(entry.rule);
                    }
                }
            }
        }
    }
}

/// Rules that are found without a search, before they are put in order.
#[derive(Debug, Default)]
pub(super) struct DirectDraft {
    rules: Vec<u32>,
    sizes: ByNumber,
    ports: [ByNumber; 2],
    places: Vec<(Place, u32)>,
}

impl DirectDraft {
    /// Adds a rule, if it need not be searched. Returns false if it must be.
    pub(super) fn add(&mut self, index: u32, rule: &Rule) -> bool {
        let place = Place::of(rule);
        let entry = Entry { rule: index, place };
        let size = rule.packet.iter().find_map(|test| match test {
            PacketTest::Number(NumberField::Dsize, Comparison::Equal(size)) => u16::try_from(*size).ok(),
            _ => None,
        });
        let pattern = rule.fast_pattern.as_ref();
        let is_rare = pattern.is_some_and(|pattern| pattern.bytes.len() > SHORT);
        if let Some(size) = size {
            self.sizes.add([size].into_iter(), entry);
        } else if is_rare {
            return false;
        } else if let Some((end, ports)) = fewest_ports(rule) {
            let numbers = || {
                ports
                    .iter()
                    .flat_map(|(first, last)| *first as u16..=*last as u16)
            };
            self.ports[end].add(numbers(), entry);
            if rule.is_bidirectional {
                self.ports[1 - end].add(numbers(), entry);
            }
        } else if let Some(place) = place {
            self.places.push((place, index));
        } else {
            return false;
        }
        self.rules.push(index);
        true
    }

    /// Returns all rules.
    pub(super) fn rules(&self) -> &[u32] {
        &self.rules
    }

    /// Puts the rules in order.
    pub(super) fn build(self) -> Direct {
        let sorted = |mut numbers: ByNumber| {
            numbers
                .entries
                .sort_by_key(|(number, entry)| (*number, entry.rule));
            numbers
        };
        let mut offsets: Vec<u32> = self.places.iter().map(|(place, _)| place.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let of_offset = |offset| {
            let places = self.places.iter().filter(|(place, _)| place.offset == offset);
            OfOffset::new(offset, places)
        };
        Direct {
            offsets: offsets.into_iter().map(of_offset).collect(),
            sizes: sorted(self.sizes),
            ports: self.ports.map(sorted),
        }
    }
}

/// Returns the end of a rule that asks for the fewest ports, 0 for the sender's, and these ports; `None` if both ask for more than
/// [`FEW_PORTS`].
fn fewest_ports(rule: &Rule) -> Option<(usize, &[(u128, u128)])> {
    let ports = |end: &'_ Endpoint| -> Option<usize> {
        let ranges = end.ports.as_ref()?.first();
        Some(
            ranges
                .iter()
                .map(|(first, last)| (last - first + 1) as usize)
                .sum(),
        )
    };
    let ends = [&rule.source, &rule.destination];
    let counts = ends
        .into_iter()
        .enumerate()
        .filter_map(|(at, end)| Some((ports(end)?, at)));
    let (_, at) = counts.min().filter(|(count, _)| *count <= FEW_PORTS)?;
    Some((at, ends[at].ports.as_ref()?.first()))
}
