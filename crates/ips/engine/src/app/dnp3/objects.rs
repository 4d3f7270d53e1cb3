//! The object headers of a fragment, and the sizes of the objects behind them (IEEE 1815-2012, section 4.2.2.7 and annex A).
//!
//! ```text
//!  group | variation | qualifier | range | prefix object | prefix object | …
//!                      0 ppp rrrr          p: 1 to 3 an index, 4 to 6 a size, of 1, 2 or 4 bytes
//! ```

use crate::app::record::Dnp3Objects;

/// Largest number of object headers of a fragment that are kept.
const HEADERS: usize = 64;

/// The size of an object without its prefix.
enum Size {
    Bytes(u64),
    /// Objects of this many bits lie side by side.
    Bits(u64),
}

/// Returns the object headers of a fragment, and true if these are all. Without `has_data`, no object follows its header.
pub(super) fn objects(mut data: &[u8], has_data: bool) -> (Vec<Dnp3Objects>, bool) {
    let mut found = Vec::new();
    while !data.is_empty() {
        if found.len() >= HEADERS {
            return (found, false);
        }
        let Some((header, rest)) = header(data) else {
            return (found, false);
        };
        found.push(header);
        let rest = match has_data {
            true => after_data(&header, rest),
            false => Some(rest),
        };
        match rest {
            Some(rest) => data = rest,
            None => return (found, false),
        }
    }
    (found, true)
}

/// Reads an object header; returns it and the bytes behind it.
fn header(data: &[u8]) -> Option<(Dnp3Objects, &[u8])> {
    let [group, variation, qualifier, rest @ ..] = data else {
        return None;
    };
    // The range specifier codes: start and stop as indices or as addresses, all, a count, a count of objects with their sizes.
    let (numbers, width) = match qualifier & 0xf {
        0x0 | 0x3 => (2, 1),
        0x1 | 0x4 => (2, 2),
        0x2 | 0x5 => (2, 4),
        0x6 => (0, 0),
        0x7 | 0xb => (1, 1),
        0x8 => (1, 2),
        0x9 => (1, 4),
        _ => return None,
    };
    let (range, rest) = rest.split_at_checked(numbers * width)?;
    let number = |at: usize| little_endian(&range[at * width..][..width]);
    let mut header = Dnp3Objects {
        group: *group,
        variation: *variation,
        qualifier: *qualifier,
        ..Dnp3Objects::default()
    };
    match numbers {
        2 => {
            (header.start, header.stop) = (number(0), number(1));
            let len = u64::from(header.stop) + 1;
            let len = len.checked_sub(header.start.into())?;
            header.count = u32::try_from(len).unwrap_or(u32::MAX);
        }
        1 => header.count = number(0),
        _ => {}
    }
    Some((header, rest))
}

/// Returns the bytes behind the objects of a header; `None` if their size is not known, or the fragment ends before.
fn after_data<'a>(header: &Dnp3Objects, data: &'a [u8]) -> Option<&'a [u8]> {
    let width: usize = match header.qualifier >> 4 & 7 {
        0 => 0,
        1 | 4 => 1,
        2 | 5 => 2,
        3 | 6 => 4,
        _ => return None,
    };
    let count = u64::from(header.count);
    if header.qualifier >> 4 & 7 >= 4 {
        // Each object has its size before it. A fragment has fewer bytes than the counter may have objects.
        let mut rest = data;
        for _ in 0..count {
            let (prefix, behind) = rest.split_at_checked(width)?;
            rest = behind.get(usize::try_from(little_endian(prefix)).ok()?..)?;
        }
        return Some(rest);
    }
    let size = match size_of_object(header.group, header.variation)? {
        Size::Bytes(size) => count.checked_mul(size + width as u64)?,
        Size::Bits(bits) if width == 0 => (count * bits).div_ceil(8),
        Size::Bits(_) => return None,
    };
    data.get(usize::try_from(size).ok()?..)
}

fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Returns the size of an object; `None` for one whose size varies, or that the standard does not define.
fn size_of_object(group: u8, variation: u8) -> Option<Size> {
    let bytes = match (group, variation) {
        (1 | 10 | 80, 1) | (12, 3) => return Some(Size::Bits(1)),
        (3, 1) => return Some(Size::Bits(2)),
        // Classes have no data, and neither has variation 0, which asks for any variation.
        (60, _) | (_, 0) => 0,
        (1 | 3 | 10, 2) | (2 | 4 | 11 | 13, 1) => 1,
        (2 | 4 | 11 | 13, 2) => 7,
        (2 | 4, 3) => 3,
        (12, 1 | 2) => 11,
        // Counters, and their frozen values: 32 and 16 bits, with flag or without.
        (20, 1 | 3) => 5,
        (20, 2 | 4) => 3,
        (20, 5 | 7) => 4,
        (20, 6 | 8) => 2,
        (21, 1 | 3) => 5,
        (21, 2 | 4) => 3,
        (21, 5 | 7) => 11,
        (21, 6 | 8) => 9,
        (21, 9 | 11) => 4,
        (21, 10 | 12) => 2,
        (22 | 23, 1 | 3) => 5,
        (22 | 23, 2 | 4) => 3,
        (22 | 23, 5 | 7) => 11,
        (22 | 23, 6 | 8) => 9,
        // Analog values: integers of 32 and 16 bits, floating point of 32 and 64.
        (30, 1) => 5,
        (30, 2) => 3,
        (30, 3) => 4,
        (30, 4) => 2,
        (30, 5) => 5,
        (30, 6) => 9,
        (31, 1 | 7) => 5,
        (31, 2) => 3,
        (31, 3) => 11,
        (31, 4) => 9,
        (31, 5) => 4,
        (31, 6) => 2,
        (31, 8) => 9,
        (32 | 33 | 42 | 43, 1 | 5) => 5,
        (32 | 33 | 42 | 43, 2) => 3,
        (32 | 33 | 42 | 43, 3 | 7) => 11,
        (32 | 33 | 42 | 43, 4 | 6) => 9,
        (32 | 33 | 42 | 43, 8) => 15,
        (34, 1) => 2,
        (34, 2 | 3) => 4,
        (40 | 41, 1 | 3) => 5,
        (40 | 41, 2) => 3,
        (40 | 41, 4) => 9,
        // Times and delays.
        (50, 1 | 3) | (51, 1 | 2) => 6,
        (50, 2) => 10,
        (50, 4) => 11,
        (52, 1 | 2) => 2,
        // The variation of a string is its size.
        (110..=113, size) => u64::from(size),
        _ => return None,
    };
    Some(Size::Bytes(bytes))
}
