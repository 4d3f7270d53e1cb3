//! The entries of the scanner: a window of each pattern, by the hash of the window.

use crate::scanner::Pattern;

/// Size of a window in bytes.
pub(super) const WINDOW: usize = 4;
/// Largest distance in bytes from the beginning of a window to the end of its pattern.
pub(super) const TAIL: usize = 32;
/// Number of high bits of a hash, which select a bit of `heads`.
pub(super) const HEAD_BITS: u32 = 17;

/// A pattern in a bucket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Index of the pattern.
    pub(super) pattern: u32,
    /// Offset of the window in the pattern in bytes.
    pub(super) offset: u32,
    /// The folded bytes of the window. A short pattern has its first two bytes in the low bytes.
    pub(super) window: u32,
    /// True for the second window of a pattern, which is one byte behind the first.
    pub(super) is_second: bool,
    /// Other bytes of the pattern, so that most windows of other patterns are refused without a look at the pattern.
    pub(super) near: Near,
}

/// Four bytes of a pattern beside its window, folded: those behind it, or else those before it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Near {
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
    pub(super) fn may_be(self, bytes: &[u8], at: usize) -> bool {
        let near = at.checked_add_signed(self.offset as isize);
        let found = near.and_then(|near| bytes.get(near..)?.first_chunk::<WINDOW>());
        // At an end of the bytes, the whole pattern is compared.
        found.is_none_or(|found| (folded_window(*found) ^ self.bytes) & self.mask == 0)
    }
}

/// Entries by hash: the entries with hash `n` are `entries[starts[n]..starts[n + 1]]`.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    pub(super) starts: Vec<u32>,
    pub(super) entries: Vec<Entry>,
    /// Number of low bits that are removed from a hash.
    shift: u32,
}

/// Returns the byte with ASCII letters in lower case.
#[inline(always)]
pub(super) fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// Returns the folded bytes as a number, the first in the low bits.
#[inline(always)]
pub(super) fn folded(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u32::from(fold(*byte)))
}

/// Returns four bytes, folded all at once, as [`folded`] does.
#[inline(always)]
pub(super) fn folded_window(window: [u8; WINDOW]) -> u32 {
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
pub(super) fn head(window: u32) -> u32 {
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

/// Returns the offset of the first of the two neighbouring windows that are rarest, of a pattern of more than four bytes.
pub(super) fn rarest_windows(pattern: &[u8]) -> usize {
    let window_frequency = |at: usize| -> u32 {
        let bytes = &pattern[at..at + WINDOW];
        // The first two bytes have more weight, because they also select the bucket of the window.
        let weight = |(i, byte): (usize, &u8)| frequency(fold(*byte)) * (4 - i as u32 / 2);
        let repeats = u32::from(bytes[0] == bytes[1]) + u32::from(bytes[2] == bytes[3]);
        bytes.iter().enumerate().map(weight).sum::<u32>() + 16 * repeats
    };
    let last = pattern.len() - WINDOW - 1;
    let first = pattern.len().saturating_sub(TAIL).min(last);
    let both = |at: &usize| window_frequency(*at) + window_frequency(at + 1);
    (first..=last).min_by_key(both).unwrap_or(first)
}

impl Entry {
    /// Returns the entry of a window at an offset of a pattern.
    pub(super) fn of_window(index: u32, pattern: &Pattern, offset: usize, is_second: bool) -> Entry {
        Entry {
            pattern: index,
            offset: offset as u32,
            window: folded(&pattern.bytes[offset..offset + WINDOW]),
            is_second,
            near: Near::of(&pattern.bytes, offset),
        }
    }

    /// Returns the entry of the first two bytes of a short pattern.
    pub(super) fn of_pair(index: u32, pattern: &Pattern) -> Entry {
        Entry {
            pattern: index,
            offset: 0,
            window: folded(&pattern.bytes[..2]),
            is_second: false,
            near: Near::default(),
        }
    }
}

impl EntryTable {
    pub(super) fn new(mut entries: Vec<Entry>) -> EntryTable {
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
        EntryTable {
            starts,
            entries,
            shift,
        }
    }

    /// Returns the entries with the hash of the window.
    #[inline(always)]
    pub(super) fn find(&self, window: u32) -> &[Entry] {
        let at = (hash(window) >> self.shift) as usize;
        let (from, to) = (self.starts[at] as usize, self.starts[at + 1] as usize);
        &self.entries[from..to]
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
