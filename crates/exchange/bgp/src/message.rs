//! The header of messages (RFC 4271, section 4.1).

use crate::family::Family;
use crate::notification::{HeaderError, Notification};
use crate::reader::Reader;

/// The size of the header in bytes.
pub(crate) const HEADER_SIZE: usize = 19;
/// The minimum size of an OPEN, an UPDATE and a NOTIFICATION in bytes (RFC 4271, sections 4.2, 4.3 and 4.5).
const OPEN_SIZE_MIN: usize = 29;
const UPDATE_SIZE_MIN: usize = 23;
const NOTIFICATION_SIZE_MIN: usize = 21;
/// The size of a ROUTE-REFRESH in bytes (RFC 2918, section 3).
const ROUTE_REFRESH_SIZE: usize = 23;
/// The maximum size of a message without the extended message capability, in bytes.
pub(crate) const MESSAGE_SIZE_MAX: usize = 4096;
/// The maximum size of a message with the extended message capability (RFC 8654), in bytes.
pub(crate) const EXTENDED_SIZE_MAX: usize = 65_535;

/// The type of a BGP message (RFC 4271, section 4.1; RFC 2918), by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum MessageType {
    Open = 1,
    Update = 2,
    Notification = 3,
    Keepalive = 4,
    /// ROUTE-REFRESH (RFC 2918).
    RouteRefresh = 5,
}

impl MessageType {
    const fn from_number(number: u8) -> Option<MessageType> {
        match number {
            1 => Some(MessageType::Open),
            2 => Some(MessageType::Update),
            3 => Some(MessageType::Notification),
            4 => Some(MessageType::Keepalive),
            5 => Some(MessageType::RouteRefresh),
            _ => None,
        }
    }

    /// Returns true if a message of this type may have this size, in a session whose messages have at most `max` bytes.
    const fn permits(self, size: usize, max: usize) -> bool {
        match self {
            MessageType::Open => size >= OPEN_SIZE_MIN && size <= MESSAGE_SIZE_MAX,
            MessageType::Keepalive => size == HEADER_SIZE,
            MessageType::Update => size >= UPDATE_SIZE_MIN && size <= max,
            MessageType::Notification => size >= NOTIFICATION_SIZE_MIN && size <= max,
            MessageType::RouteRefresh => size == ROUTE_REFRESH_SIZE,
        }
    }
}

/// The type and the size of a message, from its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: MessageType,
    /// The size of the whole message in bytes.
    pub(crate) size: usize,
}

/// Returns the header of the first message in `bytes`; `None` while it is not complete. A message of the session has at
/// most `max` bytes: [`MESSAGE_SIZE_MAX`] or [`EXTENDED_SIZE_MAX`].
///
/// # Errors
/// The [`Notification`] that ends the session.
pub(crate) fn read_header(bytes: &[u8], max: usize) -> Result<Option<Header>, Notification> {
    let mut reader = Reader(bytes);
    let (Some(marker), Some(size), Some(number)) = (reader.take(16), reader.u16(), reader.u8()) else {
        return Ok(None);
    };
    if marker.iter().any(|byte| *byte != 0xff) {
        return Err(Notification::header(HeaderError::ConnectionNotSynchronized));
    }
    let bad_length = Notification::header(HeaderError::BadMessageLength).with_data(&size.to_be_bytes());
    let size = usize::from(size);
    if size < HEADER_SIZE || size > max {
        return Err(bad_length);
    }
    let Some(kind) = MessageType::from_number(number) else {
        return Err(Notification::header(HeaderError::BadMessageType).with_data(&[number]));
    };
    if !kind.permits(size, max) {
        return Err(bad_length);
    }
    Ok(Some(Header { kind, size }))
}

/// Appends a message: the header and the body.
pub fn write_message(kind: MessageType, body: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend([0xff; 16]);
    let size = (HEADER_SIZE + body.len()).min(EXTENDED_SIZE_MAX);
    bytes.extend((size as u16).to_be_bytes());
    bytes.push(kind as u8);
    bytes.extend(body.iter().take(size - HEADER_SIZE));
}

/// Returns the body of a ROUTE-REFRESH, which asks the peer to announce all routes of a family again.
pub(crate) fn route_refresh(family: Family) -> [u8; 4] {
    let (afi, safi) = family.numbers();
    let [high, low] = afi.to_be_bytes();
    [high, low, 0, safi]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_headers_are_refused_by_their_subcodes() {
        let mut bytes = Vec::new();
        write_message(MessageType::Keepalive, &[], &mut bytes);
        let keepalive = Header {
            kind: MessageType::Keepalive,
            size: 19,
        };
        assert_eq!(read_header(&bytes, MESSAGE_SIZE_MAX), Ok(Some(keepalive)));
        assert_eq!(read_header(&bytes[..18], MESSAGE_SIZE_MAX), Ok(None));
        for (at, byte, error) in [
            (3, 0, HeaderError::ConnectionNotSynchronized),
            (17, 18, HeaderError::BadMessageLength),
            (17, 20, HeaderError::BadMessageLength),
            (16, 0x20, HeaderError::BadMessageLength),
            (18, 6, HeaderError::BadMessageType),
        ] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            let found = read_header(&changed, MESSAGE_SIZE_MAX).unwrap_err();
            let expected = Notification::header(error);
            assert_eq!(
                (found.code, found.subcode),
                (expected.code, expected.subcode),
                "{byte} at {at}"
            );
        }
    }

    #[test]
    fn only_extended_sessions_have_long_updates() {
        let mut bytes = Vec::new();
        write_message(MessageType::Update, &[0; 5000], &mut bytes);
        assert!(read_header(&bytes, MESSAGE_SIZE_MAX).is_err());
        let update = Header {
            kind: MessageType::Update,
            size: 5019,
        };
        assert_eq!(read_header(&bytes, EXTENDED_SIZE_MAX), Ok(Some(update)));
    }
}
