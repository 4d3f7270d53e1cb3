//! DNP3 over TCP (IEEE 1815-2012): link frames with their checksums, transport segments, application fragments.
//!
//! ```text
//!  link frame   | 05 64 | length | control | destination | source | CRC | 16 bytes | CRC | 16 bytes | CRC | …
//!  transport    | FIN FIR sequence | segment |                       length counts control to the end, without CRCs
//!  application  | control | function | indications (responses) | objects … |
//! ```

mod objects;
mod points;
#[cfg(test)]
mod tests;

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

/// Function codes (IEEE 1815-2012, section 4.2.2.5).
const CONFIRM: u8 = 0;
const READ: u8 = 1;
const RESPONSE: u8 = 129;
const AUTHENTICATION_RESPONSE: u8 = 131;
/// Number of requests without a response above which Suricata raises an event.
const FLOOD: u32 = 32;

/// The state of a direction.
#[derive(Debug, Default)]
struct Side {
    pending: Vec<u8>,
    /// The application fragment in progress.
    fragment: Vec<u8>,
    /// Sequence number of the next segment; `None` between fragments.
    sequence: Option<u8>,
    /// The header of the link frame with the first segment.
    link: Link,
}

/// Fields of the header of a link frame.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    control: u8,
    destination: u16,
    source: u16,
}

heap!(Side { pending, fragment });

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct Dnp3 {
    sides: [Side; 2],
    /// Requests since the last response.
    unanswered: u32,
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

impl Dnp3 {
    /// Handles the user data of a frame: a transport segment.
    fn segment(&mut self, direction: Direction, link: Link, data: &[u8], out: &mut Transactions) {
        let side = &mut self.sides[direction.index()];
        let Some((&transport, segment)) = data.split_first() else {
            return;
        };
        let (is_final, is_first, sequence) = (transport & 0x80 != 0, transport & 0x40 != 0, transport & 0x3f);
        if is_first {
            side.fragment.clear();
            side.link = link;
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
            let link = side.link;
            self.fragment(direction, link, &fragment, out);
        }
    }

    /// Publishes an application fragment.
    fn fragment(&mut self, direction: Direction, link: Link, fragment: &[u8], out: &mut Transactions) {
        let [control, function, rest @ ..] = fragment else {
            out.raise("dnp3.malformed");
            return;
        };
        let is_response = (RESPONSE..=AUTHENTICATION_RESPONSE).contains(function);
        self.unanswered = match (is_response, *function) {
            (true, _) => 0,
            (false, CONFIRM) => self.unanswered,
            (false, _) => self.unanswered.saturating_add(1),
        };
        let is_flood = self.unanswered == FLOOD + 1;
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
        if is_flood {
            transaction.raise("dnp3.flooded");
        }
        transaction.publish(Buffer::Dnp3Data, direction, fragment);
        // A read has no objects after its headers.
        let found = objects::objects(data, *function != READ);
        found.events.iter().for_each(|event| transaction.raise(event));
        transaction.record = Record::Dnp3(Box::new(Dnp3Record {
            link_control: link.control,
            source: link.source,
            destination: link.destination,
            control: *control,
            function: *function,
            indications,
            objects: found.headers,
            is_complete: found.is_complete,
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
                out.raise("dnp3.bad_transport_crc");
                return;
            }
            data.extend_from_slice(&block[..block.len() - 2]);
        }
        let link = Link {
            control: frame[3],
            destination: u16::from_le_bytes([frame[4], frame[5]]),
            source: u16::from_le_bytes([frame[6], frame[7]]),
        };
        self.segment(direction, link, &data, out);
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
