//! Frames of messages that begin with their size, and need no memory of those before them.

use millrace_ips_rules::buffers::Buffer;

use super::units::{Found, Step, Units};
use crate::app::heap::heap;
use crate::flow::Direction;

/// A function that finds a unit.
pub(super) type Unit = fn(&[u8], &mut Found<'_>) -> Step;

/// Messages that are found one by one.
#[derive(Debug)]
pub(super) struct Stateless(pub(super) Unit);

heap!(Stateless {});

impl Units for Stateless {
    fn unit(&mut self, _: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        (self.0)(bytes, found)
    }
}

/// Returns a big-endian number of up to eight bytes at an offset.
pub(super) fn big(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let digits = bytes.get(at..at + size)?;
    Some(digits.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Adds the frame of a message, of its header and of the rest.
pub(super) fn message(
    found: &mut Found<'_>,
    [pdu, header, data]: [Buffer; 3],
    (header_size, size): (u64, u64),
) -> Step {
    found.frame(pdu, 0, size);
    if size >= header_size {
        found.frame(header, 0, header_size);
    }
    if size > header_size {
        found.frame(data, header_size, size - header_size);
    }
    Step::Unit(size)
}

/// DNS: a message behind its size (RFC 1035, section 4.2.2), or a datagram.
pub(super) fn dns(bytes: &[u8], found: &mut Found<'_>) -> Step {
    if found.is_datagram {
        found.frame(Buffer::FrameDnsPdu, 0, bytes.len() as u64);
        return Step::Unit(bytes.len() as u64);
    }
    let Some(size) = big(bytes, 0, 2) else {
        return Step::More;
    };
    found.frame(Buffer::FrameDnsPdu, 2, size);
    Step::Unit(2 + size)
}

/// Modbus: the header has the size of what follows at its fifth byte (Modbus/TCP, section 3.1.3).
pub(super) fn modbus(bytes: &[u8], found: &mut Found<'_>) -> Step {
    let Some(size) = big(bytes, 4, 2) else {
        return Step::More;
    };
    found.frame(Buffer::FrameModbusPdu, 0, 6 + size);
    Step::Unit(6 + size)
}

/// MQTT: type and flags, then the size of the rest in up to four bytes of seven bits (MQTT 5, section 2.1).
pub(super) fn mqtt(bytes: &[u8], found: &mut Found<'_>) -> Step {
    let mut size = 0;
    for at in 0..4 {
        let Some(byte) = bytes.get(1 + at) else {
            return Step::More;
        };
        size |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            let kinds = [
                Buffer::FrameMqttPdu,
                Buffer::FrameMqttHeader,
                Buffer::FrameMqttData,
            ];
            let header = 2 + at as u64;
            return message(found, kinds, (header, header + size));
        }
    }
    Step::Stop
}

/// DCE/RPC: a header of 16 bytes with the size of the fragment (C706, section 12.6).
pub(super) fn dcerpc(bytes: &[u8], found: &mut Found<'_>) -> Step {
    const HEADER: u64 = 16;
    let kinds = [
        Buffer::FrameDcerpcPdu,
        Buffer::FrameDcerpcHdr,
        Buffer::FrameDcerpcData,
    ];
    let &[version, _, _, _, order, _, _, _, first, second, ..] = bytes else {
        return Step::More;
    };
    let is_little = order & 0x10 != 0;
    let size = match is_little {
        true => u16::from_le_bytes([first, second]),
        false => u16::from_be_bytes([first, second]),
    };
    match version == 5 && u64::from(size) >= HEADER {
        true => message(found, kinds, (HEADER, u64::from(size))),
        false => Step::Stop,
    }
}

/// LDAP: a sequence of BER with a definite size (RFC 4511, section 5.1).
pub(super) fn ldap(bytes: &[u8], found: &mut Found<'_>) -> Step {
    let &[tag, first, ..] = bytes else {
        return Step::More;
    };
    let digits = usize::from(first & 0x7f);
    let (header, size) = match first & 0x80 {
        0 => (2, Some(digits as u64)),
        _ if (1..=4).contains(&digits) => (2 + digits, big(bytes, 2, digits)),
        _ => return Step::Stop,
    };
    match (tag, size) {
        (0x30, None) => Step::More,
        (0x30, Some(size)) => {
            let size = header as u64 + size;
            found.frame(Buffer::FrameLdapPdu, 0, size);
            Step::Unit(size)
        }
        _ => Step::Stop,
    }
}

/// WebSocket: flags and opcode, the size in one, three or nine bytes, and a mask of four bytes (RFC 6455, section 5.2).
pub(super) fn websocket(bytes: &[u8], found: &mut Found<'_>) -> Step {
    let &[_, second, ..] = bytes else {
        return Step::More;
    };
    let (digits, size) = match second & 0x7f {
        126 => (2, big(bytes, 2, 2)),
        127 => (8, big(bytes, 2, 8)),
        size => (0, Some(u64::from(size))),
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let Some(size) = size else {
        return Step::More;
    };
    let kinds = [
        Buffer::FrameWebSocketPdu,
        Buffer::FrameWebSocketHeader,
        Buffer::FrameWebSocketData,
    ];
    let header = 2 + digits + mask;
    message(found, kinds, (header, size.saturating_add(header)))
}

/// Returns a number of variable size of QUIC (RFC 9000, section 16), and the offset behind it.
fn variable(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let size = 1 << (bytes.get(at)? >> 6);
    let mask = u64::MAX >> (64 - 8 * size + 2);
    Some((big(bytes, at, size)? & mask, at + size))
}

/// QUIC: the datagram, and header and payload of each of its packets with a long header (RFC 9000, section 17.2). The header ends
/// with the size of the payload; the number of the packet is protected, and counts as payload.
pub(super) fn quic(bytes: &[u8], found: &mut Found<'_>) -> Step {
    found.frame(Buffer::FrameQuicPdu, 0, bytes.len() as u64);
    let mut at = 0;
    while let Some((header, size)) = bytes.get(at..).and_then(long_header) {
        let size = size.min(bytes.len() - at);
        found.frame(Buffer::FrameQuicHdr, at as u64, header as u64);
        found.frame(
            Buffer::FrameQuicData,
            (at + header) as u64,
            (size - header) as u64,
        );
        at += size;
    }
    Step::Unit(bytes.len() as u64)
}

/// Returns the sizes of a long header and of its packet.
fn long_header(bytes: &[u8]) -> Option<(usize, usize)> {
    const INITIAL: u8 = 0;
    const RETRY: u8 = 3;
    let first = *bytes.first()?;
    if first & 0x80 == 0 {
        return None;
    }
    let version = big(bytes, 1, 4)?;
    let destination = usize::from(*bytes.get(5)?);
    let source_at = 6 + destination;
    let source = usize::from(*bytes.get(source_at)?);
    let mut at = source_at + 1 + source;
    // Versions of Google begin with "Q" or "T", and have no token and no size.
    let is_ietf = !matches!(version >> 24, 0x51 | 0x54);
    let kind = first >> 4 & 3;
    if !is_ietf || version == 0 || kind == RETRY {
        return (at < bytes.len()).then_some((at, bytes.len()));
    }
    if kind == INITIAL {
        let (token, behind) = variable(bytes, at)?;
        at = behind.checked_add(usize::try_from(token).ok()?)?;
    }
    let (size, behind) = variable(bytes, at)?;
    let end = behind.checked_add(usize::try_from(size).ok()?)?;
    (behind < bytes.len() && size > 0).then_some((behind, end))
}
