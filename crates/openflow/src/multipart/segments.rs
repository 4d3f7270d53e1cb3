//! Long replies, a segment at a time: a table of a million entries is never in memory as messages.

use millrace_types::Xid;

use super::{MORE, MULTIPART_HEADER_SIZE, ReplyPart, encode_header};
use crate::bytes::Put;
use crate::header::{HEADER_SIZE, MAX_MESSAGE_SIZE, MessageType, VERSION};

/// Where the flags are in a multipart message.
const FLAGS_AT: usize = HEADER_SIZE + 2;

/// The segments of a reply: an iterator of whole messages.
///
/// Every message but the last has `OFPMPF_REPLY_MORE`. A reply without parts is one message without
/// body. A part that is larger than any message is left out.
pub struct Segments<I: Iterator> {
    xid: Xid,
    parts: I,
    /// The encoded part that did not fit the segment before.
    carry: Vec<u8>,
    is_done: bool,
}

/// The segments of a reply with these parts.
pub fn segments<I>(xid: Xid, parts: I) -> Segments<I::IntoIter>
where
    I: IntoIterator,
    I::Item: ReplyPart,
{
    Segments {
        xid,
        parts: parts.into_iter(),
        carry: Vec::new(),
        is_done: false,
    }
}

/// Appends a whole reply to `out`; for replies that are known to be short.
pub fn encode_segments<I>(xid: Xid, parts: I, out: &mut Vec<u8>)
where
    I: IntoIterator,
    I::Item: ReplyPart,
{
    let mut segments = segments(xid, parts);
    while segments.append_next(out) {}
}

impl<I> Segments<I>
where
    I: Iterator,
    I::Item: ReplyPart,
{
    /// Appends the next segment to `out`; false if there is none.
    pub fn append_next(&mut self, out: &mut Vec<u8>) -> bool {
        if self.is_done {
            return false;
        }
        let start = out.len();
        out.u8(VERSION);
        out.u8(MessageType::MultipartReply.raw());
        out.u16(0);
        out.u32(self.xid.0);
        encode_header(<I::Item as ReplyPart>::TYPE, false, out);
        out.append(&mut self.carry);
        let has_more = self.fill(start, out);
        if has_more {
            let flags_at = start + FLAGS_AT;
            if let Some(flags) = out.get_mut(flags_at..flags_at + 2) {
                flags.copy_from_slice(&MORE.to_be_bytes());
            }
        }
        out.length_at(start + 2, start);
        self.is_done = !has_more;
        true
    }

    /// Adds parts while they fit; true if one is left over.
    fn fill(&mut self, start: usize, out: &mut Vec<u8>) -> bool {
        for part in self.parts.by_ref() {
            let end = out.len();
            part.encode(out);
            if out.len() - start <= MAX_MESSAGE_SIZE {
                continue;
            }
            let fits_no_message = out.len() - end > MAX_MESSAGE_SIZE - HEADER_SIZE - MULTIPART_HEADER_SIZE;
            if !fits_no_message {
                self.carry.extend_from_slice(&out[end..]);
            }
            out.truncate(end);
            if !fits_no_message {
                return true;
            }
        }
        false
    }
}

impl<I> Iterator for Segments<I>
where
    I: Iterator,
    I::Item: ReplyPart,
{
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        self.append_next(&mut message).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use millrace_types::TableId;

    use super::super::table::TableStats;
    use super::super::{MultipartReply, ReplyBody};
    use super::*;
    use crate::message::{Message, decode};

    fn table(number: u32) -> TableStats {
        TableStats {
            table: TableId(7),
            active: number,
            lookups: 0,
            matched: 0,
        }
    }

    fn parts(message: &[u8]) -> (bool, Vec<TableStats>) {
        let (header, message) = decode(message).unwrap();
        assert_eq!(header.xid, Xid(3));
        match message {
            Message::MultipartReply(MultipartReply {
                more,
                body: ReplyBody::Table(parts),
            }) => (more, parts),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_segment_but_the_last_says_more_and_none_is_too_long() {
        let messages: Vec<_> = segments(Xid(3), (0..10_000).map(table)).collect();
        assert_eq!(messages.len(), (10_000 * 24usize).div_ceil(0xffff - 16));
        let mut seen = 0;
        for (i, message) in messages.iter().enumerate() {
            let (more, parts) = parts(message);
            assert_eq!(more, i + 1 < messages.len());
            for part in parts {
                assert_eq!(part.active, seen);
                seen += 1;
            }
        }
        assert_eq!(seen, 10_000);
    }

    #[test]
    fn a_reply_without_parts_is_one_message() {
        let messages: Vec<_> = segments(Xid(3), core::iter::empty::<TableStats>()).collect();
        assert_eq!(messages.len(), 1);
        assert_eq!(parts(&messages[0]), (false, Vec::new()));
    }

    #[test]
    fn parts_that_fill_a_segment_exactly_leave_no_empty_one() {
        let fit = (0xffff - 16) / 24;
        let messages: Vec<_> = segments(Xid(3), (0..fit).map(table)).collect();
        assert_eq!(messages.len(), 1);
        assert!(!parts(&messages[0]).0);
    }
}
