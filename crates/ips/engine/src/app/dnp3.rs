//! DNP3 over TCP (IEEE 1815-2012): link frames with their checksums, transport segments, application fragments.
//!
//! ```text
//!  link frame   | 05 64 | length | control | destination | source | CRC | 16 bytes | CRC | 16 bytes | CRC | …
//!  transport    | FIN FIR sequence | segment |                       length counts control to the end, without CRCs
//!  application  | control | function | indications (responses) | objects … |
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::AppProtocol;
use super::parser::{Outcome, Parser};
use super::record::{Dnp3Record, Record};
use super::transaction::{Progress, Transactions};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The first two bytes of a frame.
const START: [u8; 2] = [0x05, 0x64];
/// Size of the header with its checksum.
const HEADER: usize = 10;
/// Bytes of the header that the value of the length field includes.
const COUNTED: usize = 5;
/// Data between two checksums.
const BLOCK: usize = 16;
/// Largest size of an application fragment that is assembled; IEEE 1815 asks for at least 2,048.
const FRAGMENT_SIZE: usize = 16 << 10;
/// Largest number of objects of a fragment whose headers are kept.
const OBJECTS: usize = 64;

/// The state of a direction.
#[derive(Debug, Default)]
struct Side {
    pending: Vec<u8>,
    /// The application fragment in progress.
    fragment: Vec<u8>,
    /// Sequence number of the next segment; `None` between fragments.
    sequence: Option<u8>,
}

heap!(Side { pending, fragment });

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Dnp3 {
    sides: [Side; 2],
}

heap!(Dnp3 { sides });

/// Returns the checksum of a block (IEEE 1815, section 9.2.5.1.1).
fn crc(bytes: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => crc >> 1 ^ 0xa6bc,
        })
    };
    !bytes.iter().fold(0, step)
}

/// Returns the offset of the first byte that may begin a frame; the size of `data` if there is none.
fn next_start(data: &[u8]) -> usize {
    let is_start =
        |at: &usize| data[*at] == START[0] && data.get(at + 1).is_none_or(|next| *next == START[1]);
    (0..data.len()).find(is_start).unwrap_or(data.len())
}

/// Returns the size of a frame in bytes, including checksums. `length` is the value of its length field.
fn frame_size(length: usize) -> usize {
    let data = length - COUNTED;
    HEADER + data + 2 * data.div_ceil(BLOCK)
}

/// Returns true if the checksum at the end of a block is correct.
fn is_right(block: &[u8]) -> bool {
    block
        .split_last_chunk::<2>()
        .is_some_and(|(data, sum)| crc(data) == u16::from_le_bytes(*sum))
}

/// Returns group and variation of the object headers that can be found without the sizes of objects: all of a fragment
/// without object data (`has_data` is false), else only the first.
fn objects(mut data: &[u8], has_data: bool) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    while let [group, variation, qualifier, rest @ ..] = data
        && found.len() < OBJECTS
    {
        found.push((*group, *variation));
        // The range specifiers (IEEE 1815, section 4.2.2.7.3): start and stop, all, a count.
        let size = match qualifier & 0xf {
            0x0 | 0x3 => 2,
            0x1 | 0x4 => 4,
            0x2 | 0x5 => 8,
            0x6 => 0,
            0x7 => 1,
            0x8 => 2,
            0x9 => 4,
            _ => break,
        };
        match rest.get(size..) {
            Some(rest) if !has_data => data = rest,
            _ => break,
        }
    }
    found
}

impl Dnp3 {
    /// Handles the user data of a frame: a transport segment.
    fn segment(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) {
        let side = &mut self.sides[direction.index()];
        let Some((&transport, segment)) = data.split_first() else {
            return;
        };
        let (is_final, is_first, sequence) = (transport & 0x80 != 0, transport & 0x40 != 0, transport & 0x3f);
        if is_first {
            side.fragment.clear();
        } else if side.sequence != Some(sequence) {
            side.sequence = None;
            out.raise("dnp3.unexpected_segment");
            return;
        }
        side.sequence = (!is_final).then_some((sequence + 1) & 0x3f);
        if side.fragment.len() + segment.len() > FRAGMENT_SIZE {
            side.sequence = None;
            side.fragment = Vec::new();
            out.raise("dnp3.fragment_too_long");
            out.raise("dnp3.too_long_reassembly");
            return;
        }
        side.fragment.extend_from_slice(segment);
        if is_final {
            let fragment = core::mem::take(&mut side.fragment);
            Dnp3::fragment(direction, &fragment, out);
        }
    }

    /// Publishes an application fragment.
    fn fragment(direction: Direction, fragment: &[u8], out: &mut Transactions) {
        let [_, function, rest @ ..] = fragment else {
            out.raise("dnp3.malformed");
            return;
        };
        let is_response = matches!(function, 129..=131);
        let indications = match (is_response, rest) {
            (true, [first, second, ..]) => Some(u16::from_be_bytes([*first, *second])),
            (true, _) => {
                out.raise("dnp3.malformed");
                return;
            }
            (false, _) => None,
        };
        let data = if is_response { &rest[2..] } else { rest };
        let transaction = out.start(AppProtocol::Dnp3);
        transaction.publish(Buffer::Dnp3Data, direction, fragment);
        transaction.record = Record::Dnp3(Box::new(Dnp3Record {
            function: *function,
            indications,
            // A read has no objects after its headers.
            objects: objects(data, *function != 1),
        }));
        transaction.advance(direction, Progress::Complete);
        transaction.advance(direction.reverse(), Progress::Complete);
        transaction.is_inspected[direction.reverse().index()] = true;
    }

    /// Handles a complete frame with a valid header.
    fn frame(&mut self, direction: Direction, frame: &[u8], out: &mut Transactions) {
        let mut data = Vec::new();
        for block in frame[HEADER..].chunks(BLOCK + 2) {
            if !is_right(block) {
                out.raise("dnp3.bad_link_crc");
                return;
            }
            data.extend_from_slice(&block[..block.len() - 2]);
        }
        self.segment(direction, &data, out);
    }
}

impl Parser for Dnp3 {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let side = &mut self.sides[chunk.direction.index()];
        if chunk.gap_before > 0 {
            *side = Side::default();
        }
        let mut data = core::mem::take(&mut side.pending);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        while let Some(header) = data[at..].first_chunk::<HEADER>() {
            let length = usize::from(header[2]);
            let problem = match [header[0], header[1]] == START {
                false => Some("dnp3.malformed"),
                true if length < COUNTED => Some("dnp3.len_too_small"),
                true if !is_right(header) => Some("dnp3.bad_link_crc"),
                true => None,
            };
            if let Some(problem) = problem {
                // A receiver also searches for the next frame.
                out.raise(problem);
                at += 1 + next_start(&data[at + 1..]);
                continue;
            }
            let Some(frame) = data.get(at..at + frame_size(length)) else {
                break;
            };
            self.frame(chunk.direction, frame, out);
            at += frame.len();
        }
        data.drain(..at);
        self.sides[chunk.direction.index()].pending = data;
        Outcome::Continue
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a frame with user data.
    fn frame(data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x05, 0x64, (data.len() + COUNTED) as u8, 0xc4, 10, 0, 1, 0];
        frame.extend(crc(&frame).to_le_bytes());
        for block in data.chunks(BLOCK) {
            frame.extend_from_slice(block);
            frame.extend(crc(block).to_le_bytes());
        }
        frame
    }

    fn run(bytes: &[u8], step: usize) -> Transactions {
        let (mut dnp3, mut out) = (Dnp3::default(), Transactions::default());
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk::of(Direction::ToServer, bytes);
            assert_eq!(dnp3.data(chunk, &mut out), Outcome::Continue);
        }
        out
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // The check value of CRC-16/DNP.
        assert_eq!(crc(b"123456789"), 0xea82);
    }

    #[test]
    fn a_fragment_in_two_segments_is_a_transaction() {
        // A read of class 1, 2 and 3 objects, then a response with indications.
        let read = b"\xc1\x01\x3c\x02\x06\x3c\x03\x06\x3c\x04\x06";
        let first = [&[0x40 | 3][..], &read[..4]].concat();
        let second = [&[0x80 | 4][..], &read[4..]].concat();
        let response = b"\xc0\xc1\x81\x90\x00\x01\x02\x00\x00\x00\x81";
        let bytes = [frame(&first), frame(&second), frame(response)].concat();
        for step in 1..bytes.len() {
            let out = run(&bytes, step);
            assert_eq!(out.list.len(), 2, "{step}");
            let side = Direction::ToServer;
            assert_eq!(out.list[0].buffer(Buffer::Dnp3Data, side), Some(&read[..]));
            let record = |at: usize| match &out.list[at].record {
                Record::Dnp3(record) => (**record).clone(),
                _ => panic!("a record of DNP3"),
            };
            assert_eq!(record(0).objects, [(60, 2), (60, 3), (60, 4)]);
            assert_eq!((record(1).function, record(1).indications), (129, Some(0x9000)));
        }
    }

    #[test]
    fn bytes_that_begin_no_frame_hide_no_frame_behind_them() {
        let attack = frame(b"\xc0\xc1\x02\x50\x01\x00\x07\x07\x00");
        let mut bad_header = frame(b"\xc0\xc1\x01");
        bad_header[2] = 255;
        for (junk, event) in [
            (&b"junk"[..], "dnp3.malformed"),
            (&[0x05], "dnp3.malformed"),
            (&[0x05, 0x64, 0x04], "dnp3.len_too_small"),
            (&bad_header, "dnp3.bad_link_crc"),
        ] {
            let bytes = [&frame(b"\xc0\xc0\x01"), junk, &attack].concat();
            for step in 1..bytes.len() {
                let out = run(&bytes, step);
                assert_eq!(out.list.len(), 2, "{junk:x?} {step}");
                assert_eq!(
                    out.list[1].buffer(Buffer::Dnp3Data, Direction::ToServer),
                    Some(&b"\xc1\x02\x50\x01\x00\x07\x07\x00"[..])
                );
                assert!(out.events.contains(&event), "{event}");
            }
        }
    }

    #[test]
    fn wrong_checksums_and_segments_out_of_order_are_events() {
        let mut bytes = frame(b"\xc0\xc1\x01");
        bytes[11] ^= 1;
        assert_eq!(run(&bytes, 100).events, ["dnp3.bad_link_crc"]);
        assert_eq!(
            run(&frame(b"\x82\xc1\x01"), 100).events,
            ["dnp3.unexpected_segment"]
        );
    }
}
