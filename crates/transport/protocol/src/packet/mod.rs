//! The packets of the protocol, as bytes.
//!
//! Every packet begins with a head of 16 bytes that belongs to one receiver:
//!
//! ```text
//!  0     1           5        8                 16
//!  ┌─────┬───────────┬────────┬─────────────────┬───
//!  │type │connection │ number │       MAC       │ body
//!  └─────┴───────────┴────────┴─────────────────┴───
//!   0 0 v v t t t 0      number: the low 24 bits of the packet number
//!   │ │ └┬┘ └─┬─┘ └─ clear
//!   │ │  │    └─ 0 DATA, 1 FEEDBACK, 2 REPORT
//!   │ │  └─ version, 0
//!   └─┴─ clear, as no QUIC packet has both bits clear (RFC 9000, section 17; greasing of the second, RFC 9287, must be off)
//! ```
//!
//! Numbers are in network byte order. The MAC is SipHash-2-4 under the pairwise key of the direction
//! ([`crate::seal::PairwiseKey`]), over the eight bytes before it and the authenticated part of the body: the seal counter and
//! the tag of a [`Data`] packet, the whole body of the others.

mod data;
mod feedback;
mod number;
mod report;
mod varint;

pub use data::{ADDRESS_SIZE, COUNTER_SIZE, DATA_OVERHEAD, Data, SHARED_OVERHEAD, SealedPart, TAG_SIZE};
pub use feedback::{ACK_RANGES_MAX, Acknowledged, Feedback};
pub use number::{NUMBER_WINDOW, expand_number};
pub use report::{REPORTED_FEEDBACK_MAX, Report};
pub use varint::{Reader, VARINT_MAX, Writer};

use crate::seal::PairwiseKey;
use thiserror::Error;

/// Bytes of the head.
pub const HEAD_SIZE: usize = 16;
/// Offset of the MAC within the head.
const MAC_OFFSET: usize = 8;
/// The longest datagram: the payload of UDP over IPv4 at an MTU of 9,000 bytes.
pub const DATAGRAM_MAX: usize = 8_972;
/// The longest feedback or report: the minimum MTU of IPv6 less the IPv6 and UDP headers.
pub const CONTROL_MAX: usize = 1_232;

/// The type of a packet, by its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketType {
    /// Sealed bytes of the session, from the sender.
    Data,
    /// Acknowledgements and credit, from the receiver.
    Feedback,
    /// The sender's progress, and the feedback that it has received.
    Report,
}

/// A datagram that is not a packet of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PacketError {
    /// The datagram ends within a field.
    #[error("a datagram of {size} bytes ends within its {field}")]
    Short {
        /// Bytes of the datagram.
        size: usize,
        field: &'static str,
    },
    /// The datagram is longer than any packet.
    #[error("a datagram of {size} bytes is longer than {max}")]
    Long {
        /// Bytes of the datagram.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The first byte belongs to QUIC, to another version or to no packet type, or its lowest bit is set.
    #[error("0x{byte:02x} is not the first byte of a packet of version 0")]
    Type {
        /// The first byte.
        byte: u8,
    },
    /// A number is outside of its range.
    #[error("the field {field} is {value}, beyond its limit")]
    Range {
        field: &'static str,
        /// The value of the field.
        value: u64,
    },
    /// Bytes follow the last field.
    #[error("{len} bytes follow the last field")]
    Trailing {
        /// The number of bytes.
        len: usize,
    },
}

/// The head of a packet, before its MAC is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub packet_type: PacketType,
    /// The identifier of the connection. The receiver of the packet chose it.
    pub connection: u32,
    /// The packet number. Only its low 24 bits are on the wire.
    pub number: u64,
}

impl Head {
    /// Reads the head of a datagram. The field `number` then has only its low 24 bits: see [`expand_number`].
    ///
    /// # Errors
    /// If the datagram is too short or too long, or its first byte is not that of a packet.
    pub fn decode(datagram: &[u8]) -> Result<Head, PacketError> {
        let size = datagram.len();
        if size > DATAGRAM_MAX {
            return Err(PacketError::Long {
                size,
                max: DATAGRAM_MAX,
            });
        }
        let Some(head) = datagram.first_chunk::<HEAD_SIZE>() else {
            return Err(PacketError::Short { size, field: "head" });
        };
        let [byte, c0, c1, c2, c3, n0, n1, n2, ..] = *head;
        let packet_type = match byte {
            0 => PacketType::Data,
            2 => PacketType::Feedback,
            4 => PacketType::Report,
            _ => return Err(PacketError::Type { byte }),
        };
        Ok(Head {
            packet_type,
            connection: u32::from_be_bytes([c0, c1, c2, c3]),
            number: u64::from(u32::from_be_bytes([0, n0, n1, n2])),
        })
    }

    /// Returns the head with its MAC. `parts` is the authenticated part of the body.
    pub fn encode(&self, key: &PairwiseKey, parts: [&[u8]; 2]) -> [u8; HEAD_SIZE] {
        let packet_type = match self.packet_type {
            PacketType::Data => 0,
            PacketType::Feedback => 2,
            PacketType::Report => 4,
        };
        let [c0, c1, c2, c3] = self.connection.to_be_bytes();
        let [.., n0, n1, n2] = self.number.to_be_bytes();
        let clear = [packet_type, c0, c1, c2, c3, n0, n1, n2];
        let mut head = [0; HEAD_SIZE];
        head[..MAC_OFFSET].copy_from_slice(&clear);
        head[MAC_OFFSET..].copy_from_slice(&key.mac(&clear, parts));
        head
    }
}

/// Returns true if the datagram's MAC matches its head and `parts`. The time of the comparison does not
/// depend on the MAC.
pub fn is_authentic(datagram: &[u8], key: &PairwiseKey, parts: [&[u8]; 2]) -> bool {
    match datagram.first_chunk::<HEAD_SIZE>() {
        Some(head) => key.verify(&head[..MAC_OFFSET], parts, &head[MAC_OFFSET..]),
        None => false,
    }
}

/// Returns a feedback or report packet.
pub(crate) fn encode_control(head: &Head, key: &PairwiseKey, body: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEAD_SIZE + body.len());
    packet.extend_from_slice(&head.encode(key, [body, &[]]));
    packet.extend_from_slice(body);
    packet
}

/// Returns the body of a feedback or report packet.
///
/// # Errors
/// If the datagram is shorter than a head or longer than [`CONTROL_MAX`].
pub fn control_body(datagram: &[u8]) -> Result<&[u8], PacketError> {
    let size = datagram.len();
    if size > CONTROL_MAX {
        return Err(PacketError::Long {
            size,
            max: CONTROL_MAX,
        });
    }
    datagram
        .get(HEAD_SIZE..)
        .ok_or(PacketError::Short { size, field: "head" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_it_was_and_its_mac_covers_every_bit() {
        let key = PairwiseKey::new([7; 16]);
        let head = Head {
            packet_type: PacketType::Feedback,
            connection: 0x0102_0304,
            number: 0xab_cdef,
        };
        let packet = encode_control(&head, &key, b"body");
        assert_eq!(packet[..8], [0x02, 1, 2, 3, 4, 0xab, 0xcd, 0xef]);
        assert_eq!(Head::decode(&packet), Ok(head));
        assert!(is_authentic(&packet, &key, [b"body", &[]]));
        for bit in 0..packet.len() * 8 {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let body = changed[HEAD_SIZE..].to_vec();
            assert!(!is_authentic(&changed, &key, [&body, &[]]), "bit {bit}");
        }
    }

    #[test]
    fn datagrams_of_quic_of_later_versions_and_with_the_lowest_bit_set_are_refused_by_name() {
        for byte in [0x40, 0x80, 0xc3, 0x10, 0x06, 0x0f, 0x01, 0x03, 0x05] {
            let mut datagram = [0; 64];
            datagram[0] = byte;
            assert_eq!(Head::decode(&datagram), Err(PacketError::Type { byte }));
        }
        assert!(matches!(Head::decode(&[0; 15]), Err(PacketError::Short { .. })));
        assert!(matches!(Head::decode(&[0; 9_000]), Err(PacketError::Long { .. })));
    }
}
