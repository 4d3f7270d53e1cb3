//! WebSocket (RFC 6455): each message is a transaction; a control frame is a message of its own. Messages of permessage-deflate
//! (RFC 7692) are decompressed.

mod deflate;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::{self, Framed, Size, fields, number};
use super::parser::{Outcome, Parser};
use super::transaction::Transactions;
use super::{AppProtocol, AppSettings};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;
use deflate::Inflater;

/// Bits of the first two bytes (section 5.2).
const FIN: u8 = 0x80;
/// The message is compressed (RFC 7692, section 6).
const COMPRESSED: u8 = 0x40;
const MASKED: u8 = 0x80;
/// Largest size of a payload that is kept, in bytes: frames and messages that are longer are cut.
const PAYLOAD: usize = framed::KEPT - 14;
/// Continuation, and the first opcode of control frames.
const CONTINUATION: u8 = 0;
const CONTROL: u8 = 8;

/// A message of which frames are missing.
#[derive(Debug, Default)]
struct Fragments {
    /// The first byte of the first frame; 0 if no message is in progress.
    first: u8,
    payload: Vec<u8>,
    /// True if `payload` lacks bytes of its frames.
    is_cut: bool,
}

heap!(Fragments { payload });

/// The parser of a connection.
#[derive(Debug, Default)]
pub(super) struct WebSocket {
    framed: Framed,
    fragments: [Fragments; 2],
    inflaters: [Inflater; 2],
    has_details: bool,
}

heap!(WebSocket {
    framed,
    fragments,
    inflaters
});

/// Returns the size of a frame.
fn size(bytes: &[u8]) -> Size {
    let [_, second, rest @ ..] = bytes else {
        return Size::Incomplete;
    };
    let mask = if second & MASKED != 0 { 4 } else { 0 };
    let (extra, count) = match second & 0x7f {
        126 => (2, 2),
        127 => (8, 8),
        size => return Size::Known(2 + mask + usize::from(size)),
    };
    let mut rest = rest;
    match number(&mut rest, count) {
        None => Size::Incomplete,
        // The highest bit is 0.
        Some(size) if size > i64::MAX as u64 / 2 => Size::Invalid,
        Some(size) => {
            usize::try_from(size).map_or(Size::Invalid, |size| Size::Known(2 + extra + mask + size))
        }
    }
}

fn opcode_name(opcode: u8) -> String {
    match opcode {
        0 => "continuation".to_owned(),
        1 => "text".to_owned(),
        2 => "binary".to_owned(),
        8 => "connection_close".to_owned(),
        9 => "ping".to_owned(),
        10 => "pong".to_owned(),
        other => format!("unknown-{other}"),
    }
}

impl WebSocket {
    pub(super) fn new(settings: AppSettings) -> WebSocket {
        WebSocket {
            has_details: settings.details,
            ..WebSocket::default()
        }
    }

    fn frame(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) -> Option<()> {
        let mut rest = bytes;
        let first = number(&mut rest, 1)? as u8;
        let second = number(&mut rest, 1)? as u8;
        match second & 0x7f {
            126 => number(&mut rest, 2)?,
            127 => number(&mut rest, 8)?,
            _ => 0,
        };
        let mask = match second & MASKED {
            0 => None,
            _ => Some(number(&mut rest, 4)? as u32),
        };
        let mut payload = rest[..rest.len().min(PAYLOAD)].to_vec();
        let is_cut = matches!(size(bytes), Size::Known(whole) if whole > bytes.len());
        if is_cut {
            out.raise("websocket.skip_end_of_payload");
        }
        let is_cut = is_cut || payload.len() < rest.len();
        if let Some(mask) = mask {
            for (byte, key) in payload.iter_mut().zip(mask.to_be_bytes().into_iter().cycle()) {
                *byte ^= key;
            }
        }
        let opcode = first & 0x0f;
        let fragments = &mut self.fragments[direction.index()];
        let (first, mut payload, is_cut) = match (opcode, first & FIN) {
            (CONTROL.., _) => (first, payload, is_cut),
            (CONTINUATION, fin) => {
                let room = PAYLOAD.saturating_sub(fragments.payload.len()).min(payload.len());
                if room < payload.len() {
                    out.raise("websocket.reassembly_limit_reached");
                }
                fragments.is_cut |= is_cut || room < payload.len();
                fragments.payload.extend_from_slice(&payload[..room]);
                if fin == 0 {
                    return Some(());
                }
                let whole = core::mem::take(fragments);
                (whole.first | FIN, whole.payload, whole.is_cut)
            }
            (_, 0) => {
                *fragments = Fragments {
                    first,
                    payload,
                    is_cut,
                };
                return Some(());
            }
            _ => (first, payload, is_cut),
        };
        let (flags, opcode) = (first & 0xf0, first & 0x0f);
        if flags & COMPRESSED != 0 && opcode < CONTROL {
            let inflater = &mut self.inflaters[direction.index()];
            // A message that is not compressed stays as it is.
            if let Some(inflated) = inflater.message(&payload, !is_cut, PAYLOAD) {
                payload = inflated.bytes;
                if inflated.has_more {
                    out.raise("websocket.reassembly_limit_reached");
                }
            }
        }
        let transaction = framed::message(AppProtocol::WebSocket, direction, out);
        transaction.number(NumberField::WebSocketFlags, direction, flags);
        transaction.number(NumberField::WebSocketOpcode, direction, opcode);
        if let Some(mask) = mask {
            transaction.number(NumberField::WebSocketMask, direction, mask);
        }
        fields(transaction, |out| {
            out.flag("fin", flags & FIN != 0);
            if let Some(mask) = mask {
                out.number("mask", mask);
            }
            out.text("opcode", opcode_name(opcode).as_bytes());
            if self.has_details {
                out.text("payload", &payload);
            }
        });
        transaction.publish(Buffer::WebSocketPayload, direction, payload);
        Some(())
    }
}

impl Parser for WebSocket {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |frame| {
            self.frame(chunk.direction, frame, out);
            true
        });
        self.framed = framed;
        outcome
    }

    fn end(&mut self, _direction: Direction, _out: &mut Transactions) {}
}
