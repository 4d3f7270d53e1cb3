//! The tables of the scanner.

use super::entry::{Entry, EntryTable, HEAD_BITS, WINDOW, fold, head, rarest_windows};
use crate::scanner::Pattern;

/// Words of the bitmap `heads`.
pub(super) const HEAD_WORDS: usize = 1 << (HEAD_BITS - 6);
/// Number of pairs of bytes.
const PAIRS: usize = 1 << 16;
/// Number of buckets of windows.
const BUCKETS: usize = 8;
/// The bucket of patterns of one to three bytes that begin at a position, if there are any.
pub(super) const EVEN_BUCKET: u8 = 7;
/// The bucket of patterns of one to four bytes that begin one byte behind a position, if there are any.
pub(super) const ODD_BUCKET: u8 = 6;
/// Bytes from one examined position to the next.
pub(super) const STEP: usize = 2;
/// Bytes whose positions are looked up before one branch.
pub(super) const STRIDE: usize = 8;
/// Size in bytes of the windows at the positions of [`STRIDE`] bytes together.
pub(super) const BLOCK: usize = STRIDE - STEP + WINDOW;

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
pub(super) struct Pair(u16);

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
    pub(super) fn until(self, end: Pair) -> u8 {
        (self.0 & end.0 >> 8) as u8
    }
}

/// The scanner.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(super) patterns: Vec<Pattern>,
    /// The buckets of each pair of bytes.
    pub(super) pairs: Box<[Pair; PAIRS]>,
    /// A bitmap with one bit for the hash of each window of four bytes.
    pub(super) heads: Box<[u64; HEAD_WORDS]>,
    /// Windows of patterns of four bytes and more.
    pub(super) long: EntryTable,
    /// First pairs of patterns of two and three bytes.
    pub(super) short: EntryTable,
    /// First pairs of patterns of two to four bytes.
    pub(super) odd: EntryTable,
    /// Patterns of one byte, by their folded byte.
    pub(super) single: Vec<Vec<u32>>,
    pub(super) has_single: bool,
    pub(super) longest: usize,
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
    pub(super) fn pair(&self, pair: [u8; 2]) -> Pair {
        self.pairs[usize::from(u16::from_le_bytes(pair))]
    }

    /// Returns the buckets of the pair at a position of a block. One load takes both bytes.
    #[inline(always)]
    pub(super) fn pair_at(&self, block: &[u8; BLOCK], at: usize) -> Pair {
        match block[at..].first_chunk() {
            Some(pair) => self.pair(*pair),
            None => unreachable!("positions of a block have a pair"),
        }
    }

    /// Returns true if the positions of a block may have a window.
    #[inline(always)]
    pub(super) fn has_buckets(&self, block: &[u8; BLOCK]) -> bool {
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
