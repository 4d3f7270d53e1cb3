//! SDP (RFC 8866): the fields of a session description in a body of SIP, which rules inspect with `sdp.origin` and others.

use millrace_ips_rules::buffers::Buffer;

use super::transaction::Transaction;
use crate::flow::Direction;

/// Largest number of fields that are published.
const FIELDS: usize = 256;

/// The media type of session descriptions.
pub(super) const MEDIA_TYPE: &[u8] = b"application/sdp";

/// Fields of the session, by their letters.
const SESSION: &[(u8, Buffer)] = &[
    (b'o', Buffer::SdpOrigin),
    (b's', Buffer::SdpSessionName),
    (b'i', Buffer::SdpSessionInfo),
    (b'u', Buffer::SdpUri),
    (b'e', Buffer::SdpEmail),
    (b'p', Buffer::SdpPhoneNumber),
    (b'c', Buffer::SdpConnectionData),
    (b'b', Buffer::SdpBandwidth),
    (b't', Buffer::SdpTime),
    (b'r', Buffer::SdpRepeatTime),
    (b'z', Buffer::SdpTimezone),
    (b'k', Buffer::SdpEncryptionKey),
    (b'a', Buffer::SdpAttribute),
    (b'm', Buffer::SdpMedia),
];

/// Fields of a media description, which begins with its first `m=`.
const MEDIA: &[(u8, Buffer)] = &[
    (b'm', Buffer::SdpMedia),
    (b'i', Buffer::SdpMediaInfo),
    (b'c', Buffer::SdpMediaConnectionData),
    (b'b', Buffer::SdpMediaBandwidth),
    (b'k', Buffer::SdpMediaEncryptionKey),
    (b'a', Buffer::SdpAttribute),
];

/// Publishes the fields of a session description, each as a buffer.
pub(super) fn publish(body: &[u8], direction: Direction, transaction: &mut Transaction) {
    let mut is_media = false;
    for line in body.split(|byte| *byte == b'\n').take(FIELDS) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let [letter, b'=', value @ ..] = line else {
            continue;
        };
        is_media |= *letter == b'm';
        let names = if is_media { MEDIA } else { SESSION };
        if let Some((_, buffer)) = names.iter().find(|(known, _)| known == letter) {
            transaction.publish(*buffer, direction, value);
        }
    }
}
