//! The object headers of a fragment, and the sizes of the objects behind them (IEEE 1815-2012, section 4.2.2.7 and annex A).
//!
//! ```text
//!  group | variation | qualifier | range | prefix object | prefix object | …
//!                      0 ppp rrrr          p: 1 to 3 an index, 4 to 6 a size, of 1, 2 or 4 bytes
//! ```

use super::points;
use crate::app::AppEvent;
use crate::app::record::Dnp3Objects;

/// Largest number of object headers of a fragment that are kept.
const HEADERS: usize = 64;
/// Numbers of objects and of points of a fragment above which Suricata raises an event.
const MANY_OBJECTS: usize = 2048;
const MANY_POINTS: u64 = 16_384;

/// The objects of a fragment.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) headers: Vec<Dnp3Objects>,
    /// True if `headers` has all of them.
    pub(super) is_complete: bool,
    pub(super) events: Vec<AppEvent>,
}

/// Returns the objects of a fragment. Without `has_data`, no object follows its header.
pub(super) fn objects(mut data: &[u8], has_data: bool) -> Found {
    let mut found = Found::default();
    let (mut headers, mut points) = (0, 0);
    while !data.is_empty() {
        let Some((mut header, rest)) = header(data) else {
            return found;
        };
        headers += 1;
        points += if has_data { u64::from(header.count) } else { 0 };
        let excess = match (headers > MANY_OBJECTS, points > MANY_POINTS) {
            (true, _) => Some("dnp3.too_many_objects"),
            (false, true) => Some("dnp3.too_many_points"),
            (false, false) => None,
        };
        if let Some(event) = excess {
            found.events.push(event);
            if found.headers.len() < HEADERS {
                found.headers.push(header);
            }
            return found;
        }
        let behind = match has_data {
            true => after_data(&header, rest),
            false => Some(rest),
        };
        if behind.is_none() && !points::has_sizes(&header) && points::size(&header).is_none() {
            found.events.push("dnp3.unknown_object");
        }
        let size = rest.len() - behind.map_or(0, <[u8]>::len);
        header.data = rest[..size].to_vec();
        if found.headers.len() < HEADERS {
            found.headers.push(header);
        }
        match behind {
            Some(behind) => data = behind,
            None => return found,
        }
    }
    found.is_complete = headers <= HEADERS;
    found
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
    let number = |at: usize| points::little_endian(&range[at * width..][..width]) as u32;
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
    if points::has_sizes(header) {
        // Each object has its size before it. A fragment has fewer bytes than the counter may have objects.
        let width = points::prefix_size(header)?;
        let mut rest = data;
        for _ in 0..header.count {
            let (prefix, behind) = rest.split_at_checked(width)?;
            rest = behind.get(usize::try_from(points::little_endian(prefix)).ok()?..)?;
        }
        return Some(rest);
    }
    data.get(usize::try_from(points::size(header)?).ok()?..)
}
