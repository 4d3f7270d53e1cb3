//! The search for the next PDU behind lost bytes of a connection.

use memchr::memchr;

/// Size in bytes of the header that all PDUs have.
const HEADER: usize = 16;
/// The major version of the protocol.
const VERSION: u8 = 5;
/// Largest type of a PDU, with those that MS-RPCE adds.
const LAST_TYPE: u8 = 20;

/// Looks for a PDU in bytes behind lost ones. Returns the position of its header and true, or the position from which on more bytes
/// may show one and false.
pub(super) fn resynchronize(data: &[u8]) -> (usize, bool) {
    let mut at = 0;
    while let Some(step) = memchr(VERSION, &data[at..]) {
        at += step;
        match data[at..].first_chunk() {
            None => return (at, false),
            Some(header) if is_likely(header) => return (at, true),
            Some(_) => at += 1,
        }
    }
    (data.len(), false)
}

/// Returns true if bytes in the middle of a stream are the header of a PDU: each field that has few values (C706, section 12.6.3.1)
/// has one of them, and the size has room for the verifier.
fn is_likely(header: &[u8; HEADER]) -> bool {
    let [version, minor, kind, _, representation, floats, ..] = *header;
    let is_little = representation & 0x10 != 0;
    let number = |at: usize| {
        let bytes = [header[at], header[at + 1]];
        usize::from(match is_little {
            true => u16::from_le_bytes(bytes),
            false => u16::from_be_bytes(bytes),
        })
    };
    (version, header[6], header[7]) == (VERSION, 0, 0)
        && minor <= 1
        && kind <= LAST_TYPE
        && representation & 0xef == 0
        && floats <= 3
        && number(8) >= HEADER + number(10)
}
