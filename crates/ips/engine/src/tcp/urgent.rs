//! Urgent bytes of a stream that is not normalised.
//!
//! RFC 9293, section 3.8.5 has one stream, in which the pointer marks a place. Systems differ (RFC 6093, section 3): BSD, Linux
//! and Windows take the last byte before the place of the pointer out of the stream, and a program gets it apart. If the program
//! asks for it (`SO_OOBINLINE`), the byte stays in the stream. Linux alone takes a pointer of 0 as one to the first byte.
//!
//! The parser gets the bytes of the first reading, which is the default everywhere. Rules over the stream are evaluated on both.

use super::{StreamChunk, StreamWindow};

/// Returns the offset of the urgent byte of a segment, from that of its first byte.
pub(super) fn offset_of(first: u64, pointer: u16) -> u64 {
    first + u64::from(pointer.saturating_sub(1))
}

/// Passes a chunk to `parse` without the urgent bytes, in pieces. Returns the gap that is still to be reported.
pub(super) fn pass(chunk: StreamChunk<'_>, urgent: &[u64], parse: &mut impl FnMut(StreamChunk<'_>)) -> u64 {
    let end = chunk.offset + chunk.bytes.len() as u64;
    let from = urgent.partition_point(|offset| *offset < chunk.offset);
    let (mut at, mut gap_before) = (chunk.offset, chunk.gap_before);
    let inside = urgent[from..].iter().copied().take_while(|offset| *offset < end);
    for stop in inside.chain([end]) {
        let bytes = &chunk.bytes[(at - chunk.offset) as usize..(stop - chunk.offset) as usize];
        if !bytes.is_empty() || stop == end && chunk.is_end {
            parse(StreamChunk {
                offset: at,
                bytes,
                gap_before: core::mem::take(&mut gap_before),
                is_end: chunk.is_end && stop == end,
                ..chunk
            });
        }
        at = stop + 1;
    }
    gap_before
}

/// A window without urgent bytes.
#[derive(Debug)]
pub(crate) struct Reduced {
    bytes: Vec<u8>,
    new_from: usize,
}

impl Reduced {
    /// Returns the window in the place of `whole`.
    pub(crate) fn window<'a>(&'a self, whole: &StreamWindow<'_>) -> StreamWindow<'a> {
        StreamWindow {
            offset: whole.offset,
            bytes: &self.bytes,
            new_from: self.new_from,
            is_end: whole.is_end,
            is_chunk: whole.is_chunk,
        }
    }
}

/// Returns a window without the urgent bytes in it; `None` if there are none.
pub(super) fn reduced(window: &StreamWindow<'_>, urgent: &[u64]) -> Option<Reduced> {
    let is_urgent = |at: usize| urgent.binary_search(&(window.offset + at as u64)).is_ok();
    let kept = |range: core::ops::Range<usize>| range.filter(|at| !is_urgent(*at));
    let bytes: Vec<u8> = kept(0..window.bytes.len()).map(|at| window.bytes[at]).collect();
    (bytes.len() < window.bytes.len()).then(|| Reduced {
        new_from: kept(0..window.new_from).count(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Direction;

    #[test]
    fn a_chunk_is_passed_without_its_urgent_bytes_and_with_its_gap_and_its_end() {
        let bytes = b"abcdef";
        for (urgent, is_end, expected) in [
            (&[][..], false, &["10:abcdef"][..]),
            (&[9, 12, 16], false, &["10:ab", "13:def"]),
            (&[10, 11, 15], true, &["12:cde", "16:."]),
            (&[10, 11, 12, 13, 14, 15], true, &["16:."]),
            (&[10, 11, 12, 13, 14, 15], false, &[]),
        ] {
            let (mut found, mut gaps) = (Vec::new(), Vec::new());
            let chunk = StreamChunk {
                direction: Direction::ToServer,
                offset: 10,
                bytes,
                gap_before: 7,
                is_end,
            };
            let left = pass(chunk, urgent, &mut |chunk| {
                let end = if chunk.is_end { "." } else { "" };
                found.push(format!(
                    "{}:{}{end}",
                    chunk.offset,
                    String::from_utf8_lossy(chunk.bytes)
                ));
                gaps.push(chunk.gap_before);
            });
            assert_eq!(found, expected, "{urgent:?}");
            assert_eq!(gaps.iter().sum::<u64>() + left, 7);
            assert!(gaps.iter().skip(1).all(|gap| *gap == 0));
        }
    }
}
