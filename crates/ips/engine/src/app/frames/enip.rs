//! Frames of EtherNet/IP (ODVA, The CIP Networks Library, volume 2): messages, their items, and the messages of CIP in them.
//!
//! ```text
//!  header (24 bytes) | interface, timeout (6 bytes; SendRRData, SendUnitData) | count | type, size, data | …
//!        └ hdr       └ data                                                           └ item     └ cip
//! ```

use millrace_ips_rules::buffers::Buffer;

use super::binary::message;
use super::units::{Found, Step, Units};
use crate::app::heap::heap;
use crate::flow::Direction;

/// Size of the encapsulation header in bytes (section 2-3.1).
const HEADER: u64 = 24;
/// Size of the type and the size of an item.
const ITEM: u64 = 4;

/// The part of a message that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Header,
    /// The number of items, behind these bytes.
    Count(u64),
    /// An item, and the number of items that follow it.
    Item(u16),
    /// Bytes without frames.
    Rest,
}

/// The message in progress of a direction.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    part: Part,
    /// Bytes of the message that follow.
    left: u64,
}

impl Side {
    /// Continues behind a unit of the message; a unit never exceeds it.
    fn pass(&mut self, size: u64, next: Part) -> Step {
        let size = size.min(self.left);
        self.left -= size;
        self.part = if self.left == 0 { Part::Header } else { next };
        Step::Unit(size)
    }
}

/// The messages of a flow.
#[derive(Debug, Default)]
pub(super) struct Enip {
    sides: [Side; 2],
}

heap!(Enip {});

fn word(bytes: &[u8], at: u64) -> Option<u16> {
    let bytes = bytes.get(at as usize..)?.first_chunk()?;
    Some(u16::from_le_bytes(*bytes))
}

impl Units for Enip {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const LIST_SERVICES: u16 = 0x0004;
        const LIST_IDENTITY: u16 = 0x0063;
        const SEND_RR_DATA: u16 = 0x006f;
        const SEND_UNIT_DATA: u16 = 0x0070;
        /// Types of items with messages of CIP (section 2-6.2); a sequence number precedes the message in the first.
        const CONNECTED_DATA: u16 = 0x00b1;
        const UNCONNECTED_DATA: u16 = 0x00b2;
        let side = &mut self.sides[direction.index()];
        if found.is_datagram && found.at == 0 {
            *side = Side::default();
        }
        match side.part {
            Part::Header => {
                let (Some(command), Some(size)) = (word(bytes, 0), word(bytes, 2)) else {
                    return Step::More;
                };
                let size = u64::from(size);
                let kinds = [Buffer::FrameEnipPdu, Buffer::FrameEnipHdr, Buffer::FrameEnipData];
                let whole = message(found, kinds, (HEADER, HEADER + size));
                let prefix = match command {
                    LIST_SERVICES | LIST_IDENTITY => 0,
                    SEND_RR_DATA | SEND_UNIT_DATA => 6,
                    _ => return whole,
                };
                side.left = HEADER + size;
                side.pass(HEADER, Part::Count(prefix))
            }
            Part::Count(prefix) => match word(bytes, prefix) {
                _ if side.left < prefix + 2 => side.pass(u64::MAX, Part::Rest),
                None => Step::More,
                Some(0) => side.pass(prefix + 2, Part::Rest),
                Some(count) => side.pass(prefix + 2, Part::Item(count - 1)),
            },
            Part::Item(following) => {
                let (kind, size) = match (word(bytes, 0), word(bytes, 2)) {
                    _ if side.left < ITEM => return side.pass(u64::MAX, Part::Rest),
                    (Some(kind), Some(size)) => (kind, u64::from(size)),
                    _ => return Step::More,
                };
                let size = size.min(side.left - ITEM);
                found.frame(Buffer::FrameEnipItem, 0, ITEM + size);
                let before = match kind {
                    CONNECTED_DATA => Some(2),
                    UNCONNECTED_DATA => Some(0),
                    _ => None,
                };
                if let Some(before) = before.filter(|before| *before < size) {
                    found.frame(Buffer::FrameEnipCip, ITEM + before, size - before);
                }
                let next = match following {
                    0 => Part::Rest,
                    _ => Part::Item(following - 1),
                };
                side.pass(ITEM + size, next)
            }
            Part::Rest => side.pass(u64::MAX, Part::Rest),
        }
    }
}
