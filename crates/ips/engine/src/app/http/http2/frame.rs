//! The numbers of frames that rules compare: types, error codes, priorities, windows, settings and sizes of tables.

use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::settings;

use super::header::{Frame, flag, kind};

/// Largest number of settings of a frame, and of sizes in a header block, that are noted.
pub(super) const NOTED: usize = 64;

/// Returns a big-endian number of four bytes at an offset.
fn word(payload: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*payload.get(at..)?.first_chunk()?))
}

/// Returns the numbers of a frame (RFC 9113, section 6).
pub(super) fn numbers(frame: Frame, payload: &[u8]) -> Vec<(NumberField, u64)> {
    let mut numbers = vec![(NumberField::Http2FrameType, u64::from(frame.kind))];
    let mut add = |field, value: Option<u64>| numbers.extend(value.map(|value| (field, value)));
    let error = |at| word(payload, at).map(u64::from);
    match frame.kind {
        kind::RST_STREAM => add(NumberField::Http2ErrorCode, error(0)),
        kind::GOAWAY => add(NumberField::Http2ErrorCode, error(4)),
        kind::PRIORITY => add(
            NumberField::Http2Priority,
            payload.get(4).map(|weight| u64::from(*weight)),
        ),
        kind::HEADERS if frame.has(flag::PRIORITY) => {
            let at = usize::from(frame.has(flag::PADDED));
            let weight = payload.get(at + 4).map(|weight| u64::from(*weight));
            add(NumberField::Http2Priority, weight);
        }
        // The highest bit is reserved.
        kind::WINDOW_UPDATE => add(
            NumberField::Http2Window,
            word(payload, 0).map(|size| u64::from(size & 0x7fff_ffff)),
        ),
        kind::SETTINGS if !frame.has(flag::ACK) => {
            for setting in payload.chunks_exact(6).take(NOTED) {
                let identifier = u16::from_be_bytes([setting[0], setting[1]]);
                let value = word(setting, 2).map(|value| settings::number(identifier, value));
                add(NumberField::Http2Setting, value);
            }
        }
        _ => {}
    }
    numbers
}

/// Returns the sizes of the table with which a header block begins (RFC 7541, section 6.3).
pub(super) fn size_updates(block: &[u8]) -> Vec<(NumberField, u64)> {
    let mut sizes = Vec::new();
    let mut rest = block;
    while let Some((first, tail)) = rest.split_first()
        && first & 0xe0 == 0x20
        && sizes.len() < NOTED
    {
        let Some((size, behind)) = integer(first & 0x1f, tail) else {
            break;
        };
        sizes.push((NumberField::Http2SizeUpdate, size));
        rest = behind;
    }
    sizes
}

/// Returns an integer with a prefix of five bits, and the bytes behind it (RFC 7541, section 5.1).
fn integer(prefix: u8, bytes: &[u8]) -> Option<(u64, &[u8])> {
    const LARGEST_PREFIX: u8 = 0x1f;
    if prefix < LARGEST_PREFIX {
        return Some((u64::from(prefix), bytes));
    }
    let mut value = u64::from(LARGEST_PREFIX);
    for (at, byte) in bytes.iter().enumerate().take(8) {
        value += u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_the_table_are_in_front_of_a_block() {
        let sizes =
            |block: &[u8]| -> Vec<u64> { size_updates(block).into_iter().map(|(_, size)| size).collect() };
        assert_eq!(sizes(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]), [0, 4096]);
        assert_eq!(sizes(&[0x82, 0x20]), [0; 0]);
        assert_eq!(sizes(&[0x3f, 0xff, 0xff]), [0; 0]);
    }
}
