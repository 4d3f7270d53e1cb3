//! Encodes long replies message by message, so that the list of a million entries is never in memory as a
//! whole.

use millrace_types::Xid;

use super::{MORE, MULTIPART_HEADER_SIZE, MultipartType, ReplyPart, encode_header};
use crate::bytes::PutBytes;
use crate::header::{HEADER_SIZE, MAX_MESSAGE_SIZE, MessageType, VERSION};

/// Offset of the flags in a multipart message.
const FLAGS_AT: usize = HEADER_SIZE + 2;

/// Encodes a reply of any length, item by item, as messages.
///
/// Every message but the last has `OFPMPF_REPLY_MORE`. A reply without items is one message without body.
/// An item that does not fit into one message is left out.
#[derive(Debug)]
pub struct SegmentWriter {
    xid: Xid,
    type_: MultipartType,
    /// The bytes that precede the items in every message.
    head: &'static [u8],
    /// The message that is being filled; empty before the first item.
    open: Vec<u8>,
}

impl SegmentWriter {
    /// Returns a writer for a reply.
    pub fn new(xid: Xid, type_: MultipartType) -> SegmentWriter {
        SegmentWriter {
            xid,
            type_,
            head: &[],
            open: Vec::new(),
        }
    }

    /// Returns a writer for updates of [flow monitors](crate::flow_monitor).
    pub fn flow_updates(xid: Xid) -> SegmentWriter {
        SegmentWriter {
            // The number of the experimenter (the ONF), and the type `ONFMP_FLOW_MONITOR`.
            head: &[0x4f, 0x4e, 0x46, 0, 0, 0, 0x07, 0x4e],
            ..SegmentWriter::new(xid, MultipartType::Experimenter)
        }
    }

    /// Adds an item. If it does not fit the open message, that message is finished and appended to `out`.
    pub fn push<P: ReplyPart>(&mut self, part: &P, out: &mut Vec<u8>) {
        debug_assert_eq!(P::TYPE, self.type_);
        if self.open.is_empty() {
            self.begin();
        }
        let end = self.open.len();
        part.encode(&mut self.open);
        if self.open.len() <= MAX_MESSAGE_SIZE {
            return;
        }
        let part = self.open.split_off(end);
        if part.len() > MAX_MESSAGE_SIZE - HEADER_SIZE - MULTIPART_HEADER_SIZE - self.head.len() {
            return;
        }
        self.end(true, out);
        self.begin();
        self.open.extend_from_slice(&part);
    }

    /// Appends the last message to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if self.open.is_empty() {
            self.begin();
        }
        self.end(false, out);
    }

    fn begin(&mut self) {
        self.open.u8(VERSION);
        self.open.u8(MessageType::MultipartReply.raw());
        self.open.u16(0);
        self.open.u32(self.xid.0);
        encode_header(self.type_, false, &mut self.open);
        self.open.bytes(self.head);
    }

    fn end(&mut self, has_more: bool, out: &mut Vec<u8>) {
        self.open.length_at(2, 0);
        if has_more && let Some(flags) = self.open.get_mut(FLAGS_AT..FLAGS_AT + 2) {
            flags.copy_from_slice(&MORE.to_be_bytes());
        }
        out.append(&mut self.open);
    }
}

/// Appends a complete reply with these items to `out`. Use it for short replies only.
pub fn encode_segments<I>(xid: Xid, parts: I, out: &mut Vec<u8>)
where
    I: IntoIterator,
    I::Item: ReplyPart,
{
    let mut writer = SegmentWriter::new(xid, <I::Item as ReplyPart>::TYPE);
    for part in parts {
        writer.push(&part, out);
    }
    writer.finish(out);
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

    /// Returns the messages of a reply.
    fn segments(parts: impl Iterator<Item = TableStats>) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        encode_segments(Xid(3), parts, &mut out);
        let mut messages = Vec::new();
        while let Some(header) = crate::header::Header::parse(&out) {
            let rest = out.split_off(usize::from(header.length));
            messages.push(core::mem::replace(&mut out, rest));
        }
        messages
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
        let messages = segments((0..10_000).map(table));
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
        let messages = segments(core::iter::empty());
        assert_eq!(messages.len(), 1);
        assert_eq!(parts(&messages[0]), (false, Vec::new()));
    }

    #[test]
    fn parts_that_fill_a_segment_exactly_leave_no_empty_one() {
        let fit = (0xffff - 16) / 24;
        let messages = segments((0..fit).map(table));
        assert_eq!(messages.len(), 1);
        assert!(!parts(&messages[0]).0);
    }
}
