//! Hashed windows: one bit rules out most positions of a block.
//!
//! Each pattern of four or more bytes is represented by a window of four folded (lower-case) bytes: the
//! rarest window among its last [`TAIL`] bytes. Shorter patterns are represented by their first two bytes,
//! single bytes by themselves.
//!
//! ```text
//!  T[b[i], b[i+1]].first & T[b[i+2], b[i+3]].second ──▶ buckets of windows, eight positions at a time    none ──▶ next
//!                       │ some
//!  hash of fold(b[i..i+4]) ──▶ heads: 131,072 bits (16 KiB)                                             no ──▶ next
//!                       │ yes
//!                       ▼
//!            entries[hash] ──▶ compare four bytes beside the window ──▶ compare the pattern at i - offset ──▶ hit
//! ```
//!
//! `T` has two bytes for each pair of bytes, in upper and lower case. Each byte has one bit for each of eight
//! buckets: the bit in `first` is set if a window of the bucket begins with the pair, the bit in `second` if
//! one ends with it. A position passes if its two pairs have a bucket in common. Windows that begin alike are
//! mostly in one bucket, so that few buckets have a given beginning, and each bucket has few ends. Short
//! patterns have a separate bucket, in which every pair is an end.
//!
//! The first test covers eight positions before it branches, because in text single positions pass too often
//! and too irregularly for branch prediction. Text in one language has few pairs, so the used part of `T`
//! stays in the L1 cache.
//!
//! A window begins at most [`TAIL`] bytes before the end of its pattern. A scan of new bytes therefore starts
//! [`TAIL`] - 1 bytes before them. The comparison of a pattern may read still earlier bytes.
//!
//! The scheme follows "DFC: Accelerating String Pattern Matching for Network Applications" (Choi et al., NSDI 2016),
//! with a window chosen by rarity in place of the first bytes.

use crate::scanner::{Pattern, Scanner, is_equal};

/// Size of a window in bytes.
const WINDOW: usize = 4;

/// Number of high bits of a hash, which select a bit of `heads`.
const HEAD_BITS: u32 = 17;
/// Words of the bitmap `heads`.
const HEAD_WORDS: usize = 1 << (HEAD_BITS - 6);
/// Number of pairs of bytes.
const PAIRS: usize = 1 << 16;
/// Number of buckets of windows.
const BUCKETS: usize = 8;
/// The bucket of patterns of one to three bytes, if there are any.
const SHORT_BUCKET: u8 = 7;
/// Positions that are looked up before one branch.
const STRIDE: usize = 8;
/// Size in bytes of the windows at [`STRIDE`] positions together.
const BLOCK: usize = STRIDE + WINDOW - 1;
/// Largest distance in bytes from the beginning of a window to the end of its pattern.
const TAIL: usize = 32;

/// A pattern in a bucket.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Index of the pattern.
    pattern: u32,
    /// Offset of the window in the pattern in bytes.
    offset: u32,
    /// The folded bytes of the window. A short pattern has its bytes in the low bytes.
    window: u32,
    /// Other bytes of the pattern, so that most windows of other patterns are refused without a look at the pattern.
    near: Near,
}

/// Four bytes of a pattern beside its window, folded: those behind it, or else those before it.
#[derive(Debug, Clone, Copy, Default)]
struct Near {
    bytes: u32,
    /// The bits of `bytes` that belong to the pattern.
    mask: u32,
    /// Offset from the beginning of the window.
    offset: i32,
}

impl Near {
    /// Returns the bytes beside the window at an offset of a pattern.
    fn of(pattern: &[u8], window: usize) -> Near {
        let behind = &pattern[window + WINDOW..];
        let before = &pattern[..window];
        let mut bytes = [0; WINDOW];
        let mut mask = [0; WINDOW];
        let is_behind = behind.len() >= WINDOW.min(before.len());
        let (part, at) = match is_behind {
            true => {
                let part = &behind[..behind.len().min(WINDOW)];
                (part, 0)
            }
            false => {
                let part = &before[before.len().saturating_sub(WINDOW)..];
                (part, WINDOW - part.len())
            }
        };
        bytes[at..at + part.len()].copy_from_slice(part);
        mask[at..at + part.len()].fill(u8::MAX);
        Near {
            bytes: folded(&bytes),
            mask: u32::from_le_bytes(mask),
            offset: if is_behind { 4 } else { -4 },
        }
    }

    /// Returns false if the bytes beside a window at `at` are others than those of the pattern.
    #[inline(always)]
    fn may_be(self, bytes: &[u8], at: usize) -> bool {
        let near = at.checked_add_signed(self.offset as isize);
        let found = near.and_then(|near| bytes.get(near..)?.first_chunk::<WINDOW>());
        // At an end of the bytes, the whole pattern is compared.
        found.is_none_or(|found| (folded_window(*found) ^ self.bytes) & self.mask == 0)
    }
}

/// Entries by hash: the entries with hash `n` are `entries[starts[n]..starts[n + 1]]`.
#[derive(Debug, Default)]
struct Buckets {
    starts: Vec<u32>,
    entries: Vec<Entry>,
    /// Number of low bits that are removed from a hash.
    shift: u32,
}

/// The buckets of a pair of bytes, one bit each:
///
/// ```text
///  15             8 7              0
/// ┌────────────────┬────────────────┐
/// │     second     │     first      │
/// └────────────────┴────────────────┘
/// ```
///
/// `first` has the buckets with a window that begins with the pair, `second` those with a window that ends with it.
#[derive(Debug, Clone, Copy, Default)]
struct Pair(u16);

impl Pair {
    /// Adds a bucket with a window that begins with the pair.
    fn add_first(&mut self, bucket: u8) {
        self.0 |= 1 << bucket;
    }

    /// Adds a bucket with a window that ends with the pair.
    fn add_second(&mut self, bucket: u8) {
        self.0 |= 1 << (8 + bucket);
    }

    /// Returns the buckets with a window that begins with the pair.
    #[inline(always)]
    fn first(self) -> u8 {
        self.0 as u8
    }

    /// Returns the buckets with a window that begins with this pair and ends with `end`.
    #[inline(always)]
    fn until(self, end: Pair) -> u8 {
        (self.0 & end.0 >> 8) as u8
    }
}

/// The scanner.
#[derive(Debug)]
pub(crate) struct Windows {
    patterns: Vec<Pattern>,
    /// The buckets of each pair of bytes.
    pairs: Box<[Pair; PAIRS]>,
    /// A bitmap with one bit for the hash of each window of four bytes.
    heads: Box<[u64; HEAD_WORDS]>,
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

/// Returns four bytes, folded all at once, as [`folded`] does.
#[inline(always)]
fn folded_window(window: [u8; WINDOW]) -> u32 {
    const HIGH: u32 = 0x8080_8080;
    /// Returns a word with `byte` in each of its four bytes.
    const fn each(byte: u8) -> u32 {
        u32::from_ne_bytes([byte; 4])
    }
    let word = u32::from_le_bytes(window);
    // The highest bit of each byte is set in `from_a` if its low seven bits are at least `A`, in `above_z` if above
    // `Z`.
    let low = word & !HIGH;
    let from_a = low + each(0x80 - b'A');
    let above_z = low + each(0x7f - b'Z');
    let is_upper = (from_a ^ above_z) & !word & HIGH;
    // Upper and lower case differ in the bit of value 0x20.
    word | is_upper >> 2
}

/// Returns a hash whose high bits depend on all bits of the value.
#[inline(always)]
fn hash(value: u32) -> u32 {
    // Fibonacci hashing: 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
    (value ^ value >> 15).wrapping_mul(0x9e37_79b1)
}

/// Returns the index of a window's bit in the bitmap `heads`.
#[inline(always)]
fn head(window: u32) -> u32 {
    hash(window) >> (u32::BITS - HEAD_BITS)
}

/// Returns the estimated frequency of a folded byte in network traffic, relative to other bytes.
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
            pairs: boxed(Pair::default()),
            heads: boxed(0),
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
                        scanner.set_pair([byte, next], |pair| pair.add_first(SHORT_BUCKET));
                    }
                }
                2 | 3 => {
                    let window = folded(&pattern.bytes[..2]);
                    let [first, second, ..] = window.to_le_bytes();
                    scanner.set_pair([first, second], |pair| pair.add_first(SHORT_BUCKET));
                    short.push(Entry {
                        pattern: index,
                        offset: 0,
                        window,
                        near: Near::default(),
                    });
                }
                _ => {
                    let window_frequency = |at: &usize| -> u32 {
                        let bytes = &pattern.bytes[*at..*at + WINDOW];
                        // The first two bytes have more weight, because they also select the bucket of the
                        // window.
                        let weight = |(i, byte): (usize, &u8)| frequency(fold(*byte)) * (4 - i as u32 / 2);
                        let repeats = u32::from(bytes[0] == bytes[1]) + u32::from(bytes[2] == bytes[3]);
                        bytes.iter().enumerate().map(weight).sum::<u32>() + 16 * repeats
                    };
                    let last = pattern.bytes.len() - WINDOW;
                    let first = pattern.bytes.len().saturating_sub(TAIL);
                    let offset = (first..=last).min_by_key(window_frequency).unwrap_or(first);
                    let window = folded(&pattern.bytes[offset..offset + WINDOW]);
                    let head = head(window);
                    scanner.heads[(head >> 6) as usize] |= 1 << (head & 63);
                    long.push(Entry {
                        pattern: index,
                        offset: offset as u32,
                        window,
                        near: Near::of(&pattern.bytes, offset),
                    });
                }
            }
        }
        let has_short = scanner.has_single || !short.is_empty();
        if has_short {
            scanner
                .pairs
                .iter_mut()
                .for_each(|pair| pair.add_second(SHORT_BUCKET));
        }
        scanner.distribute(&mut long, BUCKETS - usize::from(has_short));
        scanner.long = Buckets::new(long);
        scanner.short = Buckets::new(short);
        scanner
    }

    /// Distributes windows over buckets, so that windows that begin alike are mostly in one bucket.
    fn distribute(&mut self, entries: &mut [Entry], buckets: usize) {
        entries.sort_unstable_by_key(|entry| entry.window.swap_bytes());
        let size = entries.len().div_ceil(buckets).max(1);
        for (bucket, entries) in entries.chunks(size).enumerate() {
            for entry in entries {
                let [a, b, c, d] = entry.window.to_le_bytes();
                self.set_pair([a, b], |pair| pair.add_first(bucket as u8));
                self.set_pair([c, d], |pair| pair.add_second(bucket as u8));
            }
        }
    }

    /// Changes the buckets of a pair of folded bytes, for upper and lower case of each byte.
    fn set_pair(&mut self, [first, second]: [u8; 2], change: impl Fn(&mut Pair)) {
        for first in [first, first.to_ascii_uppercase()] {
            for second in [second, second.to_ascii_uppercase()] {
                change(&mut self.pairs[usize::from(u16::from_le_bytes([first, second]))]);
            }
        }
    }

    /// Returns the buckets of a pair of bytes.
    #[inline(always)]
    fn pair(&self, pair: [u8; 2]) -> Pair {
        self.pairs[usize::from(u16::from_le_bytes(pair))]
    }

    /// Returns the buckets of the pair at a position of a block. One load takes both bytes.
    #[inline(always)]
    fn pair_at(&self, block: &[u8; BLOCK], at: usize) -> Pair {
        match block[at..].first_chunk() {
            Some(pair) => self.pair(*pair),
            None => unreachable!("positions of a block have a pair"),
        }
    }

    /// Compares the pattern of an entry whose window begins at `at`, and reports a hit.
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

    /// Examines a position. `buckets` has the buckets that may have a window there.
    #[inline]
    fn examine(&self, bytes: &[u8], at: usize, buckets: u8, hit: &mut dyn FnMut(u32, usize)) {
        if let Some(window) = bytes.get(at..).and_then(<[u8]>::first_chunk::<WINDOW>) {
            let window = folded_window(*window);
            let head = head(window);
            if self.heads[(head >> 6) as usize & (HEAD_WORDS - 1)] >> (head & 63) & 1 != 0 {
                self.examine_long(window, bytes, at, hit);
            }
        }
        // If there are no short patterns, this bucket has windows of four bytes.
        if buckets >> SHORT_BUCKET & 1 != 0 {
            if !self.short.entries.is_empty()
                && let Some(pair) = bytes.get(at..at + 2)
            {
                self.examine_short(folded(pair), bytes, at, hit);
            }
            if self.has_single {
                self.examine_single(bytes, at, hit);
            }
        }
    }

    /// Compares the one-byte patterns at a position.
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

    /// Compares the patterns of four or more bytes that have their window at a position.
    #[inline(never)]
    fn examine_long(&self, window: u32, bytes: &[u8], at: usize, hit: &mut dyn FnMut(u32, usize)) {
        for entry in self.long.find(window) {
            if entry.window == window && entry.near.may_be(bytes, at) {
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

impl Windows {
    /// Returns true if one of the positions of a block may have a window.
    #[inline(always)]
    fn has_buckets(&self, block: &[u8; BLOCK]) -> bool {
        // Each pair is read once. It begins one window and ends another.
        let (mut first, mut second) = (self.pair_at(block, 0), self.pair_at(block, 1));
        let mut any = 0;
        for at in 0..STRIDE {
            let third = self.pair_at(block, at + 2);
            any |= first.until(third);
            (first, second) = (second, third);
        }
        any != 0
    }

    /// Examines the positions of a block that may have a window.
    #[inline(never)]
    fn examine_block(&self, bytes: &[u8], at: usize, block: &[u8; BLOCK], hit: &mut dyn FnMut(u32, usize)) {
        for position in 0..STRIDE {
            let buckets = self
                .pair_at(block, position)
                .until(self.pair_at(block, position + 2));
            if buckets != 0 {
                self.examine(bytes, at + position, buckets, hit);
            }
        }
    }

    /// Calls `hit` for each occurrence with a window that begins at or after `from`.
    #[inline]
    fn scan_from(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32, usize)) {
        if self.has_single
            && let Some(last) = bytes.len().checked_sub(1)
            && last >= from
        {
            // No pair begins with the last byte.
            self.examine_single(bytes, last, hit);
        }
        let mut at = from;
        // One branch covers eight positions, because most blocks have no bucket.
        while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) {
            if self.has_buckets(block) {
                self.examine_block(bytes, at, block, hit);
            }
            at += STRIDE;
        }
        for (position, pair) in bytes.get(at..).unwrap_or_default().windows(2).enumerate() {
            let buckets = self.pair([pair[0], pair[1]]).first();
            if buckets != 0 {
                self.examine(bytes, at + position, buckets, hit);
            }
        }
    }
}

/// Returns an array on the heap, because it does not fit on every stack.
fn boxed<T: Clone, const LEN: usize>(value: T) -> Box<[T; LEN]> {
    match vec![value; LEN].into_boxed_slice().try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the slice has the length of the array"),
    }
}

impl Scanner for Windows {
    fn scan(&self, bytes: &[u8], hit: &mut dyn FnMut(u32, usize)) {
        self.scan_from(bytes, 0, hit);
    }

    fn scan_new(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32, usize)) {
        if from == 0 {
            return self.scan_from(bytes, 0, hit);
        }
        self.scan_from(bytes, (from + 1).saturating_sub(TAIL), &mut |id, end| {
            if end > from {
                hit(id, end);
            }
        });
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
        let bits = size_of_val(&*self.pairs) + size_of_val(&*self.heads);
        patterns + bits + buckets(&self.long) + buckets(&self.short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_folded_as_its_bytes_are() {
        for first in 0..=u8::MAX {
            for second in 0..=u8::MAX {
                let window = [first, second, !first, second.rotate_left(3)];
                assert_eq!(folded_window(window), folded(&window), "{window:?}");
            }
        }
    }
}
