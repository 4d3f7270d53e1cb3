//! The search for the next message behind lost bytes of a connection.

use crate::flow::Direction;

/// Size in bytes of the header of a message (RFC 1035, section 4.1.1).
pub(super) const HEADER: usize = 12;
/// Size in bytes of the length field in front of each message (RFC 1035, section 4.2.2).
const LENGTH: usize = 2;
/// Size in bytes of the type and the class of a question.
const QUESTION: usize = 4;
/// Smallest size in bytes of a resource record: the root as name, type, class, TTL, and the length of no data.
const RESOURCE: usize = 11;
/// Largest size in bytes of a name (RFC 1035, section 3.1).
const NAME: usize = 255;
/// QUERY, NOTIFY and UPDATE.
const OPCODES: [u16; 3] = [0, 4, 5];
/// The Internet, Chaos, Hesiod, none and any.
const CLASSES: [u16; 5] = [1, 3, 4, 254, 255];

/// Looks for a message in bytes behind lost ones. Returns the position of its length field and true, or the position from which on
/// more bytes may show one and false.
pub(super) fn resynchronize(data: &[u8], direction: Direction) -> (usize, bool) {
    for at in 0..data.len() {
        match begins_message(&data[at..], direction) {
            Some(false) => {}
            found => return (at, found.is_some()),
        }
    }
    (data.len(), false)
}

/// Returns true if bytes in the middle of a stream begin a message with one question: each field that has few values has one of
/// them, and the size has room for the records. Returns `None` if more bytes are needed.
fn begins_message(data: &[u8], direction: Direction) -> Option<bool> {
    let number = |at: usize| {
        let bytes = data.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let size = usize::from(number(0)?);
    let flags = number(LENGTH + 2)?;
    let mut resources = 0;
    for section in 1..4 {
        resources += usize::from(number(LENGTH + 4 + 2 * section)?);
    }
    let is_answer = flags & 0x8000 != 0;
    let is_header = number(LENGTH + 4)? == 1
        && is_answer == (direction == Direction::ToClient)
        && OPCODES.contains(&(flags >> 11 & 0xf))
        && flags & 0x0040 == 0
        && size > HEADER + QUESTION + resources * RESOURCE;
    if !is_header {
        return Some(false);
    }
    let mut name = 0;
    loop {
        let at = HEADER + name;
        if name >= NAME || at + QUESTION >= size {
            return Some(false);
        }
        match data.get(LENGTH + at)? {
            0 => break,
            // Nothing stands before the first name, to which a pointer could lead.
            0x40.. => return Some(false),
            label => name += 1 + usize::from(*label),
        }
    }
    let question = LENGTH + HEADER + name + 1;
    Some(number(question)? != 0 && CLASSES.contains(&number(question + 2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: u8) -> Vec<u8> {
        let mut data = vec![0, 27, 0x12, 0x34, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        data.extend_from_slice(b"\x01a\x07example\0\0\x01\0\x01");
        data
    }

    #[test]
    fn a_message_is_found_behind_any_rest_of_another() {
        let whole = message(1);
        for cut in 0..whole.len() {
            let data = [&whole[cut..], &whole].concat();
            let expected = if cut == 0 { 0 } else { whole.len() - cut };
            assert_eq!(
                resynchronize(&data, Direction::ToServer),
                (expected, true),
                "{cut}"
            );
            // It is found when its question is whole, and its bytes stay until then.
            for end in expected..expected + whole.len() {
                let (at, is_found) = resynchronize(&data[..end], Direction::ToServer);
                assert!(at <= expected && !is_found, "{cut} {end}");
            }
        }
    }

    #[test]
    fn bytes_with_a_wrong_field_are_no_message() {
        let changes = [
            (1, 16),
            (4, 0x81),
            (4, 0x19),
            (5, 0x40),
            (7, 2),
            (9, 1),
            (14, 0xc0),
            (14, 0x3f),
            (26, 0),
            (28, 9),
        ];
        for (at, value) in changes {
            let mut data = message(1);
            data[at] = value;
            assert_eq!(begins_message(&data, Direction::ToServer), Some(false), "{at}");
        }
        assert_eq!(begins_message(&message(1), Direction::ToClient), Some(false));
        assert_eq!(begins_message(&message(0x81), Direction::ToClient), Some(true));
    }
}
