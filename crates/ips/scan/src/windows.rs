//! Hashed windows: most positions of a block are decided by one bit.
//!
//! Each pattern of four bytes and more is represented by a window of four folded bytes, where it is rarest. Shorter
//! patterns are represented by their first two bytes, single bytes by themselves.
//!
//! ```text
//!  b[i], b[i+1] ──▶ pairs: 65,536 bits (8 KiB), eight positions at a time      no ──▶ next positions
//!                       │ yes
//!  hash of fold(b[i..i+4]) ──▶ heads: 131,072 bits (16 KiB)                    no ──▶ next set bit
//!                       │ yes
//!                       ▼
//!            buckets[hash] ──▶ entries ──▶ compare the pattern at i - offset ──▶ hit
//! ```
//!
//! The bits of pairs are set for both cases of letters, so that the bytes are folded only behind the first test.
//!
//! The scheme follows "DFC: Accelerating String Pattern Matching for Network Applications" (Choi et al., NSDI 2016),
//! with a window chosen by rarity in place of the first bytes.

use crate::{Pattern, Scanner, is_equal};

/// Size of a window in bytes.
const WINDOW: usize = 4;

/// Number of bits of a hash that select a bit of `heads`.
const HEAD_BITS: u32 = 17;
/// Positions whose pairs are looked up before a branch.
const STRIDE: usize = 8;

/// A pattern in a bucket.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Index of the pattern.
    pattern: u32,
    /// Offset of the window in the pattern in bytes.
    offset: u32,
    /// The folded bytes of the window, those of short patterns in the low bytes.
    window: u32,
}

/// Entries by hash: those of bucket `n` are `entries[starts[n]..starts[n + 1]]`.
#[derive(Debug, Default)]
struct Buckets {
    starts: Vec<u32>,
    entries: Vec<Entry>,
    /// Number of low bits that a hash loses.
    shift: u32,
}

/// The scanner.
#[derive(Debug)]
pub(crate) struct Windows {
    patterns: Vec<Pattern>,
    /// One bit for each pair of bytes with which a window begins, in both cases.
    pairs: Vec<u64>,
    /// One bit for the hash of each window of four bytes.
    heads: Vec<u64>,
    /// One bit for each pair of folded bytes with which a pattern of two or three bytes begins.
    short_heads: Vec<u64>,
    /// Windows of patterns of four bytes and more.
    long: Buckets,
    /// Pairs of patterns of two and three bytes.
    short: Buckets,
    /// Patterns of one byte, by their folded byte.
    single: Vec<Vec<u32>>,
    has_single: bool,
    longest: usize,
}

/// Returns the byte with ASCII letters in lower case.
#[inline(always)]
fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// Returns the folded bytes as a number, the first in the low bits.
#[inline(always)]
fn folded(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u32::from(fold(*byte)))
}

/// Returns four bytes with ASCII letters in lower case.
#[inline(always)]
fn fold4(bytes: u32) -> u32 {
    const EACH: u32 = 0x0101_0101;
    let low = bytes & (0x7f * EACH);
    // Additions set the high bit of a byte that is at least `A`, and of one that is above `Z`; none carries over.
    let from_a = low + (0x80 - b'A' as u32) * EACH;
    let above_z = low + (0x7f - b'Z' as u32) * EACH;
    let is_upper = (from_a ^ above_z) & !bytes & (0x80 * EACH);
    bytes | is_upper >> 2
}

/// Returns a hash whose high bits depend on all bits of the value.
#[inline(always)]
fn hash(value: u32) -> u32 {
    // Fibonacci hashing: 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
    (value ^ value >> 15).wrapping_mul(0x9e37_79b1)
}

/// Returns an estimate of how often a folded byte occurs in network traffic, from 0.
fn frequency(byte: u8) -> u32 {
    match byte {
        0 => 40,
        b' ' | b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 24,
        b'\r' | b'\n' | 0xff | b'/' | b'.' | b'h' | b'd' | b'l' | b'c' | b'm' | b'p' | b'u' => 16,
        b'a'..=b'z' | b'0'..=b'9' | b'-' | b'=' | b':' | b'"' | b'<' | b'>' => 8,
        1..=8 => 6,
        b' '..=b'~' => 4,
        _ => 2,
    }
}

impl Buckets {
    fn new(mut entries: Vec<Entry>) -> Buckets {
        const LEAST_BITS: u32 = 8;
        const MOST_BITS: u32 = 17;
        let bits = (usize::BITS - entries.len().leading_zeros() + 1).clamp(LEAST_BITS, MOST_BITS);
        let shift = u32::BITS - bits;
        entries.sort_by_key(|entry| (hash(entry.window) >> shift, entry.window));
        let mut starts = vec![0u32; (1 << bits) + 1];
        for entry in &entries {
            starts[(hash(entry.window) >> shift) as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Buckets {
            starts,
            entries,
            shift,
        }
    }

    /// Returns the entries with the hash of the window.
    #[inline(always)]
    fn find(&self, window: u32) -> &[Entry] {
        let at = (hash(window) >> self.shift) as usize;
        let (from, to) = (self.starts[at] as usize, self.starts[at + 1] as usize);
        &self.entries[from..to]
    }
}

impl Windows {
    /// Builds the tables.
    pub(crate) fn new(patterns: &[Pattern]) -> Windows {
        let mut scanner = Windows {
            patterns: patterns.to_vec(),
            pairs: vec![0; 1 << 10],
            heads: vec![0; 1 << (HEAD_BITS - 6)],
            short_heads: vec![0; 1 << 10],
            long: Buckets::default(),
            short: Buckets::default(),
            single: vec![Vec::new(); 256],
            has_single: false,
            longest: patterns.iter().map(|p| p.bytes.len()).max().unwrap_or(0),
        };
        let (mut long, mut short) = (Vec::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            let index = index as u32;
            match pattern.bytes.len() {
                0 => {}
                1 => {
                    let byte = fold(pattern.bytes[0]);
                    scanner.single[usize::from(byte)].push(index);
                    scanner.has_single = true;
                    // Any byte may follow.
                    for next in 0..=u8::MAX {
                        scanner.set_pair(u32::from_le_bytes([byte, next, 0, 0]));
                    }
                }
                2 | 3 => {
                    let window = folded(&pattern.bytes[..2]);
                    scanner.set_pair(window);
                    scanner.short_heads[(window >> 6) as usize & 1023] |= 1 << (window & 63);
                    short.push(Entry {
                        pattern: index,
                        offset: 0,
                        window,
                    });
                }
                _ => {
                    let rarity = |at: &usize| -> u32 {
                        let bytes = &pattern.bytes[*at..*at + WINDOW];
                        // The first two bytes decide whether the bitmap lets a position pass.
                        let weight = |(i, byte): (usize, &u8)| frequency(fold(*byte)) * (4 - i as u32 / 2);
                        let diversity = u32::from(bytes[0] == bytes[1]) + u32::from(bytes[2] == bytes[3]);
                        bytes.iter().enumerate().map(weight).sum::<u32>() + 16 * diversity
                    };
                    let offset = (0..=pattern.bytes.len() - WINDOW).min_by_key(rarity).unwrap_or(0);
                    let window = folded(&pattern.bytes[offset..offset + WINDOW]);
                    scanner.set_pair(window);
                    let head = hash(window) >> (u32::BITS - HEAD_BITS);
                    scanner.heads[(head >> 6) as usize] |= 1 << (head & 63);
                    long.push(Entry {
                        pattern: index,
                        offset: offset as u32,
                        window,
                    });
                }
            }
        }
        scanner.long = Buckets::new(long);
        scanner.short = Buckets::new(short);
        scanner
    }

    /// Sets the bits of a pair of folded bytes, for both cases of each.
    fn set_pair(&mut self, window: u32) {
        let [first, second, ..] = window.to_le_bytes();
        for first in [first, first.to_ascii_uppercase()] {
            for second in [second, second.to_ascii_uppercase()] {
                let pair = u16::from_le_bytes([first, second]);
                self.pairs[usize::from(pair >> 6)] |= 1 << (pair & 63);
            }
        }
    }

    /// Compares the pattern of an entry whose window is at `at`.
    #[inline]
    fn confirm(&self, entry: &Entry, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        let pattern = &self.patterns[entry.pattern as usize];
        let Some(start) = at.checked_sub(entry.offset as usize) else {
            return;
        };
        let end = start + pattern.bytes.len();
        if let Some(candidate) = bytes.get(start..end)
            && is_equal(pattern, candidate)
        {
            hit(pattern.id, end);
        }
    }

    /// Examines a position whose pair is that of a window.
    #[inline]
    fn examine(&self, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        if let Some(window) = bytes.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            let window = fold4(u32::from_le_bytes(*window));
            let head = hash(window) >> (u32::BITS - HEAD_BITS);
            if self.heads[(head >> 6) as usize] >> (head & 63) & 1 != 0 {
                self.examine_long(window, bytes, at, hit);
            }
        }
        if !self.short.entries.is_empty() {
            let pair = folded(bytes.get(at..at + 2).unwrap_or_default());
            if self.short_heads[(pair >> 6) as usize & 1023] >> (pair & 63) & 1 != 0 {
                self.examine_short(pair, bytes, at, hit);
            }
        }
        if self.has_single {
            self.examine_single(bytes, at, hit);
        }
    }

    /// Compares the patterns of one byte at a position.
    #[inline]
    fn examine_single(&self, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        let Some(byte) = bytes.get(at) else { return };
        for &index in &self.single[usize::from(fold(*byte))] {
            let pattern = &self.patterns[index as usize];
            if is_equal(pattern, &bytes[at..=at]) {
                hit(pattern.id, at + 1);
            }
        }
    }

    /// Compares the patterns of four bytes and more whose window is at a position.
    #[inline(never)]
    fn examine_long(&self, window: u32, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        for entry in self.long.find(window) {
            if entry.window == window {
                self.confirm(entry, bytes, at, hit);
            }
        }
    }

    /// Compares the patterns of two and three bytes that begin at a position.
    #[inline(never)]
    fn examine_short(&self, pair: u32, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        for entry in self.short.find(pair) {
            if entry.window == pair {
                self.confirm(entry, bytes, at, hit);
            }
        }
    }
}

impl Scanner for Windows {
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize)) {
        if self.has_single
            && let Some(last) = bytes.len().checked_sub(1)
        {
            // No pair begins with the last byte.
            self.examine_single(bytes, last, hit);
        }
        let pairs: &[u64] = &self.pairs[..1 << 10];
        let is_set = |first: u8, second: u8| {
            let pair = u16::from_le_bytes([first, second]);
            pairs[usize::from(pair >> 6)] >> (pair & 63) & 1
        };
        let mut at = 0;
        // One branch for eight positions: most have no set bit.
        while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<{ STRIDE + 1 }>) {
            let mut set = 0;
            for (position, pair) in block.windows(2).enumerate() {
                set |= is_set(pair[0], pair[1]) << position;
            }
            while set != 0 {
                self.examine(bytes, at + set.trailing_zeros() as usize, hit);
                set &= set - 1;
            }
            at += STRIDE;
        }
        for (position, pair) in bytes[at..].windows(2).enumerate() {
            if is_set(pair[0], pair[1]) != 0 {
                self.examine(bytes, at + position, hit);
            }
        }
    }

    fn longest(&self) -> usize {
        self.longest
    }

    fn memory(&self) -> usize {
        let patterns: usize = self
            .patterns
            .iter()
            .map(|p| p.bytes.len() + size_of::<Pattern>())
            .sum();
        let buckets = |b: &Buckets| size_of_val(&b.starts[..]) + size_of_val(&b.entries[..]);
        let bits = size_of_val(&self.pairs[..]) * 2 + size_of_val(&self.heads[..]);
        patterns + bits + buckets(&self.long) + buckets(&self.short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_folded_as_each_byte_is() {
        for byte in 0..=u8::MAX {
            for other in [0, b'@', b'Z', 0x7f, 0x80, 0xda, 0xff] {
                let bytes = [byte, other, other, byte];
                let expected = bytes.map(fold);
                assert_eq!(
                    fold4(u32::from_le_bytes(bytes)).to_le_bytes(),
                    expected,
                    "{bytes:?}"
                );
            }
        }
    }
}
