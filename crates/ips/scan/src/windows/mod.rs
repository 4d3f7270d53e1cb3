//! Hashed windows: one bit rules out most positions of a block.
//!
//! Each pattern of five or more bytes is represented by two neighbouring windows of four folded (lower-case) bytes: the rarest
//! two among its last [`TAIL`] bytes. One of them begins at an even position, wherever the pattern is, so only even positions
//! are examined. Shorter patterns are represented by their first two bytes, single bytes by themselves.
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
//! mostly in one bucket, so that few buckets have a given beginning, and each bucket has few ends.
//!
//! Short patterns have two separate buckets. In [`EVEN_BUCKET`] they begin at the position, and every pair is an end. In [`ODD_BUCKET`]
//! they begin one byte behind it: any byte is in front of their first one, and their next bytes are the end. There, a pattern of four
//! bytes counts as short, because only three of them are in the window.
//!
//! ```text
//!  position        i     i+1   i+2   i+3
//!  EVEN_BUCKET   [ a     b ] [ any   any ]
//!  ODD_BUCKET    [ any   a ] [ b     c   ]
//! ```
//!
//! The first test covers four positions before it branches, because in text single positions pass too often
//! and too irregularly for branch prediction. Text in one language has few pairs, so the used part of `T`
//! stays in the L1 cache.
//!
//! A window begins at most [`TAIL`] bytes before the end of its pattern. A scan of new bytes therefore starts
//! [`TAIL`] - 1 bytes before them. The comparison of a pattern may read still earlier bytes.
//!
//! The scheme follows "DFC: Accelerating String Pattern Matching for Network Applications" (Choi et al., NSDI 2016),
//! with windows chosen by rarity in place of the first bytes.

mod entry;
mod search;

use crate::scanner::{Pattern, Scanner};
use entry::{Entry, EntryTable, HEAD_BITS, fold, head, rarest_windows};
use search::Scan;

/// Size of a window in bytes.
const WINDOW: usize = 4;
/// Words of the bitmap `heads`.
const HEAD_WORDS: usize = 1 << (HEAD_BITS - 6);
/// Number of pairs of bytes.
const PAIRS: usize = 1 << 16;
/// Number of buckets of windows.
const BUCKETS: usize = 8;
/// The bucket of patterns of one to three bytes that begin at a position, if there are any.
const EVEN_BUCKET: u8 = 7;
/// The bucket of patterns of one to four bytes that begin one byte behind a position, if there are any.
const ODD_BUCKET: u8 = 6;
/// Bytes from one examined position to the next.
const STEP: usize = 2;
/// Bytes whose positions are looked up before one branch.
const STRIDE: usize = 8;
/// Size in bytes of the windows at the positions of [`STRIDE`] bytes together.
const BLOCK: usize = STRIDE - STEP + WINDOW;
/// Largest distance in bytes from the beginning of a window to the end of its pattern.
const TAIL: usize = 32;

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
    long: EntryTable,
    /// First pairs of patterns of two and three bytes.
    short: EntryTable,
    /// First pairs of patterns of two to four bytes.
    odd: EntryTable,
    /// Patterns of one byte, by their folded byte.
    single: Vec<Vec<u32>>,
    has_single: bool,
    longest: usize,
}

impl Windows {
    /// Builds the tables.
    pub(crate) fn new(patterns: &[Pattern]) -> Windows {
        let mut scanner = Windows {
            patterns: patterns.to_vec(),
            pairs: boxed(Pair::default()),
            heads: boxed(0),
            long: EntryTable::default(),
            short: EntryTable::default(),
            odd: EntryTable::default(),
            single: vec![Vec::new(); 256],
            has_single: false,
            longest: patterns.iter().map(|p| p.bytes.len()).max().unwrap_or(0),
        };
        let (mut long, mut short, mut odd) = (Vec::new(), Vec::new(), Vec::new());
        for (index, pattern) in patterns.iter().enumerate() {
            let index = index as u32;
            let size = pattern.bytes.len();
            match size {
                0 => continue,
                1 => scanner.add_single(index, fold(pattern.bytes[0])),
                2 | 3 => short.push(Entry::of_pair(index, pattern)),
                WINDOW => long.push(Entry::of_window(index, pattern, 0, false)),
                _ => {
                    let at = rarest_windows(&pattern.bytes);
                    long.push(Entry::of_window(index, pattern, at, false));
                    long.push(Entry::of_window(index, pattern, at + 1, true));
                }
            }
            if (2..=WINDOW).contains(&size) {
                odd.push(Entry::of_pair(index, pattern));
                scanner.add_odd(&pattern.bytes);
            }
        }
        for entry in &long {
            let head = head(entry.window);
            scanner.heads[(head >> 6) as usize] |= 1 << (head & 63);
        }
        for entry in &short {
            let [first, second, ..] = entry.window.to_le_bytes();
            scanner.set_pair([first, second], |pair| pair.add_first(EVEN_BUCKET));
        }
        if scanner.has_single || !short.is_empty() {
            scanner
                .pairs
                .iter_mut()
                .for_each(|pair| pair.add_second(EVEN_BUCKET));
        }
        let has_short = scanner.has_single || !odd.is_empty();
        scanner.distribute(
            &mut long,
            if has_short {
                usize::from(ODD_BUCKET)
            } else {
                BUCKETS
            },
        );
        scanner.long = EntryTable::new(long);
        scanner.short = EntryTable::new(short);
        scanner.odd = EntryTable::new(odd);
        scanner
    }

    /// Adds a pattern of one byte: any byte may follow, or be in front.
    fn add_single(&mut self, index: u32, byte: u8) {
        self.single[usize::from(byte)].push(index);
        self.has_single = true;
        for other in 0..=u8::MAX {
            self.set_pair([byte, other], |pair| pair.add_first(EVEN_BUCKET));
            self.set_pair([other, byte], |pair| pair.add_first(ODD_BUCKET));
        }
        self.pairs.iter_mut().for_each(|pair| pair.add_second(ODD_BUCKET));
    }

    /// Adds the pairs of a pattern of two to four bytes that begins one byte behind a position.
    fn add_odd(&mut self, bytes: &[u8]) {
        for other in 0..=u8::MAX {
            self.set_pair([other, fold(bytes[0])], |pair| pair.add_first(ODD_BUCKET));
            let third = bytes.get(2).map_or(other, |third| fold(*third));
            self.set_pair([fold(bytes[1]), third], |pair| pair.add_second(ODD_BUCKET));
        }
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

    /// Returns true if the positions of a block may have a window.
    #[inline(always)]
    fn has_buckets(&self, block: &[u8; BLOCK]) -> bool {
        // Each pair is read once. It begins one window and ends another.
        let mut first = self.pair_at(block, 0);
        let mut any = 0;
        for at in (0..STRIDE).step_by(STEP) {
            let second = self.pair_at(block, at + 2);
            any |= first.until(second);
            first = second;
        }
        any != 0
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
        self.scan_new(bytes, 0, hit);
    }

    fn scan_new(&self, bytes: &[u8], from: usize, hit: &mut dyn FnMut(u32, usize)) {
        Scan::run(self, bytes, from, hit);
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
        let buckets = |b: &EntryTable| size_of_val(&b.starts[..]) + size_of_val(&b.entries[..]);
        let bits = size_of_val(&*self.pairs) + size_of_val(&*self.heads);
        patterns + bits + buckets(&self.long) + buckets(&self.short) + buckets(&self.odd)
    }
}
