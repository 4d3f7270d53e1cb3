//! The numbers of frames that rules compare: types, error codes, priorities, windows, settings and sizes of tables; and the
//! fields of records with some of them.

use millrace_ips_rules::options::number::NumberField;
use millrace_ips_rules::options::settings;

use super::header::{Frame, flag, kind};
use crate::app::record::{FIELD_LIST, Fields};

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

/// The names of settings in records, from the identifier 1 on (RFC 9113, section 6.5.2).
const SETTINGS: [&str; 6] = [
    "SETTINGSHEADERTABLESIZE",
    "SETTINGSENABLEPUSH",
    "SETTINGSMAXCONCURRENTSTREAMS",
    "SETTINGSINITIALWINDOWSIZE",
    "SETTINGSMAXFRAMESIZE",
    "SETTINGSMAXHEADERLISTSIZE",
];

/// The names of error codes in records, from 0 on (RFC 9113, section 7).
const ERRORS: [&str; 14] = [
    "NOERROR",
    "PROTOCOLERROR",
    "INTERNALERROR",
    "FLOWCONTROLERROR",
    "SETTINGSTIMEOUT",
    "STREAMCLOSED",
    "FRAMESIZEERROR",
    "REFUSEDSTREAM",
    "CANCEL",
    "COMPRESSIONERROR",
    "CONNECTERROR",
    "ENHANCEYOURCALM",
    "INADEQUATESECURITY",
    "HTTP11REQUIRED",
];

/// Returns a name of a list, or the number without a name.
fn name_or_number(names: &[&str], at: Option<usize>, number: u32) -> Vec<u8> {
    let name = at.and_then(|at| names.get(at));
    name.map_or_else(
        || number.to_string().into_bytes(),
        |name| name.as_bytes().to_vec(),
    )
}

/// Returns the settings of a payload (RFC 9113, section 6.5.1) for records.
pub(super) fn settings(payload: &[u8]) -> Vec<Fields> {
    let read = |setting: &[u8]| {
        let identifier = u16::from_be_bytes([setting[0], setting[1]]);
        let at = usize::from(identifier).checked_sub(1);
        let mut fields = Fields::default();
        let name = name_or_number(&SETTINGS, at, identifier.into());
        fields.text("settings_id", &name);
        if let Some(value) = word(setting, 2) {
            fields.number("settings_value", value);
        }
        fields
    };
    payload.chunks_exact(6).take(FIELD_LIST).map(read).collect()
}

/// Returns the values of a frame for records: its priority, its settings, its error code.
pub(super) fn values(frame: Frame, payload: &[u8]) -> Fields {
    let mut fields = Fields::default();
    for (field, value) in numbers(frame, payload) {
        match field {
            NumberField::Http2Priority => {
                fields.number("priority", value);
            }
            NumberField::Http2ErrorCode => {
                let code = u32::try_from(value).unwrap_or(u32::MAX);
                let at = usize::try_from(value).ok();
                fields.text("error_code", &name_or_number(&ERRORS, at, code));
            }
            _ => {}
        }
    }
    if frame.kind == kind::SETTINGS && !frame.has(flag::ACK) && !payload.is_empty() {
        fields.objects("settings", settings(payload));
    }
    fields
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
    fn settings_priorities_and_errors_are_values_of_records() {
        let frame = |kind, flags| Frame {
            size: 0,
            kind,
            flags,
            stream: 0,
        };
        let settings = values(frame(kind::SETTINGS, 0), &[0, 3, 0, 0, 0, 100, 0, 9, 0, 0, 0, 1]);
        let mut first = Fields::default();
        first
            .text("settings_id", b"SETTINGSMAXCONCURRENTSTREAMS")
            .number("settings_value", 100_u32);
        let mut second = Fields::default();
        second.text("settings_id", b"9").number("settings_value", 1_u32);
        let mut expected = Fields::default();
        expected.objects("settings", vec![first, second]);
        assert_eq!(settings, expected);
        assert_eq!(values(frame(kind::SETTINGS, flag::ACK), &[]), Fields::default());
        let mut expected = Fields::default();
        expected.text("error_code", b"CANCEL");
        assert_eq!(values(frame(kind::RST_STREAM, 0), &[0, 0, 0, 8]), expected);
        let mut expected = Fields::default();
        expected.number("priority", 15_u32);
        assert_eq!(values(frame(kind::PRIORITY, 0), &[0, 0, 0, 0, 15]), expected);
    }

    #[test]
    fn sizes_of_the_table_are_in_front_of_a_block() {
        let sizes =
            |block: &[u8]| -> Vec<u64> { size_updates(block).into_iter().map(|(_, size)| size).collect() };
        assert_eq!(sizes(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]), [0, 4096]);
        assert_eq!(sizes(&[0x82, 0x20]), [0; 0]);
        assert_eq!(sizes(&[0x3f, 0xff, 0xff]), [0; 0]);
    }
}
