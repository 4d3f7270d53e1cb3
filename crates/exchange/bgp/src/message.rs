//! The header of messages (RFC 4271, section 4.1).

use crate::family::Family;
use crate::notification::Notification;
use crate::reader::Reader;

/// The size of the header in bytes.
pub const HEADER_SIZE: usize = 19;
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

    /// Returns true if a message of this type may have this size.
    const fn permits(self, size: usize, is_extended: bool) -> bool {
        match self {
            MessageType::Open => size >= 29 && size <= MESSAGE_SIZE_MAX,
            MessageType::Keepalive => size == HEADER_SIZE,
            MessageType::Update => size >= 23 && size <= max(is_extended),
            MessageType::Notification => size >= 21 && size <= max(is_extended),
            MessageType::RouteRefresh => size == 23,
        }
    }
}

const fn max(is_extended: bool) -> usize {
    if is_extended {
        EXTENDED_SIZE_MAX
    } else {
        MESSAGE_SIZE_MAX
    }
}

/// Returns the type and the size of the first message in `bytes`; `None` while its header is not complete.
///
/// # Errors
/// The [`Notification`] that ends the session.
pub fn message_size(bytes: &[u8], is_extended: bool) -> Result<Option<(MessageType, usize)>, Notification> {
    let mut reader = Reader(bytes);
    let (Some(marker), Some(size), Some(number)) = (reader.take(16), reader.u16(), reader.u8()) else {
        return Ok(None);
    };
    if marker.iter().any(|byte| *byte != 0xff) {
        return Err(Notification::header(1));
    }
    let bad_length = Notification::header(2).with_data(&size.to_be_bytes());
    let size = usize::from(size);
    if size < HEADER_SIZE || size > max(is_extended) {
        return Err(bad_length);
    }
    let Some(kind) = MessageType::from_number(number) else {
        return Err(Notification::header(3).with_data(&[number]));
    };
    if !kind.permits(size, is_extended) {
        return Err(bad_length);
    }
    Ok(Some((kind, size)))
}

/// Appends a message: the header and the body.
pub fn header(kind: MessageType, body: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend([0xff; 16]);
    let size = (HEADER_SIZE + body.len()).min(EXTENDED_SIZE_MAX);
    bytes.extend((size as u16).to_be_bytes());
    bytes.push(kind as u8);
    bytes.extend(body.iter().take(size - HEADER_SIZE));
}

/// Returns the body of a ROUTE-REFRESH, which asks the peer to announce all routes of a family again.
pub fn route_refresh(family: Family) -> [u8; 4] {
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
        header(MessageType::Keepalive, &[], &mut bytes);
        assert_eq!(
            message_size(&bytes, false),
            Ok(Some((MessageType::Keepalive, 19)))
        );
        assert_eq!(message_size(&bytes[..18], false), Ok(None));
        let subcode = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            message_size(&changed, false).unwrap_err().subcode
        };
        assert_eq!(subcode(3, 0), 1);
        assert_eq!(subcode(17, 18), 2);
        assert_eq!(subcode(17, 20), 2);
        assert_eq!(subcode(16, 0x20), 2);
        assert_eq!(subcode(18, 6), 3);
    }

    #[test]
    fn only_extended_sessions_have_long_updates() {
        let mut bytes = Vec::new();
        header(MessageType::Update, &[0; 5000], &mut bytes);
        assert!(message_size(&bytes, false).is_err());
        assert_eq!(message_size(&bytes, true), Ok(Some((MessageType::Update, 5019))));
    }
}
