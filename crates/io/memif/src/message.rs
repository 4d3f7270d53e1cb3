//! The messages of the control channel. Each is 128 bytes long and begins with a 16-bit type.
//!
//! Numbers are in host byte order, as both processes run on one machine. This implementation supports little-endian
//! machines.

use core::fmt;

use crate::direction::Direction;
use crate::error::MessageError;

/// Bytes of every message.
pub const MESSAGE_SIZE: usize = 128;
/// Bytes of a name.
const NAME_SIZE: usize = 32;
/// Bytes of a secret.
const SECRET_SIZE: usize = 24;
/// Bytes of the reason in a `DISCONNECT`.
const REASON_SIZE: usize = 96;

/// The name of a program or an interface, for people: at most 31 bytes of text. `Display` replaces unprintable characters.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Name([u8; NAME_SIZE]);

impl Name {
    /// Returns the name `text`, truncated to the size of the field.
    pub fn new(text: &str) -> Name {
        let mut bytes = [0; NAME_SIZE];
        for (byte, c) in bytes.iter_mut().zip(text.bytes().take(NAME_SIZE - 1)) {
            *byte = c;
        }
        Name(bytes)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Writes the bytes before the first zero, with `?` for unprintable ones.
fn show(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in bytes.iter().take_while(|byte| **byte != 0) {
        let c = char::from(*byte);
        write!(f, "{}", if c.is_ascii_graphic() || c == ' ' { c } else { '?' })?;
    }
    Ok(())
}

/// The text that explains a `DISCONNECT`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Reason([u8; REASON_SIZE]);

impl Reason {
    /// Returns the reason `text`, truncated to the size of the field.
    pub fn new(text: &str) -> Reason {
        let mut bytes = [0; REASON_SIZE];
        for (byte, c) in bytes.iter_mut().zip(text.bytes().take(REASON_SIZE - 1)) {
            *byte = c;
        }
        Reason(bytes)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// The fields of an `ADD_RING` message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddRing {
    /// The direction of the ring's packets.
    pub direction: Direction,
    /// The index among the rings of that direction, from 0.
    pub index: u16,
    /// The index of the region that contains the ring.
    pub region: u16,
    /// The offset of the ring in the region, in bytes.
    pub offset: u32,
    /// Binary logarithm of the number of descriptors.
    pub log2_len: u8,
    /// Bytes of a private header in front of each packet; 0 here.
    pub private_header_size: u16,
}

/// A control message of memif, as it goes over the Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The server acknowledges a message of the client.
    Ack,
    /// The server announces its limits.
    Hello {
        /// The name of the server's program.
        name: Name,
        /// The oldest version that the server supports.
        min_version: u16,
        /// The newest version that the server supports.
        max_version: u16,
        /// The highest index of a region.
        max_region: u16,
        /// The highest index of a ring to the client.
        max_to_client: u16,
        /// The highest index of a ring to the server.
        max_to_server: u16,
        /// Binary logarithm of the longest ring.
        max_log2_ring: u8,
    },
    /// The client chooses an interface.
    Init {
        /// The version of this connection.
        version: u16,
        /// The interface id, unique at this socket.
        id: u32,
        /// The interface mode; 0 carries Ethernet frames.
        mode: u8,
        /// A shared secret; all zero without one.
        secret: [u8; SECRET_SIZE],
        /// The name of the client's program.
        name: Name,
    },
    /// The client shares a memory region. Its file descriptor accompanies the message.
    AddRegion {
        /// The index of the region, from 0.
        index: u16,
        /// The size of the region, in bytes.
        size: u64,
    },
    /// The client describes a ring. The eventfd that interrupts its receiver accompanies the message.
    AddRing(AddRing),
    /// The client has described all regions and rings.
    Connect {
        /// The name of the client's interface.
        name: Name,
    },
    /// The server has mapped the regions and rings; packets may flow.
    Connected {
        /// The name of the server's interface.
        name: Name,
    },
    /// The sender closes the connection.
    Disconnect {
        /// An error code; all known implementations send 0.
        code: u32,
        /// The reason, for people.
        reason: Reason,
    },
}

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// Flag of `ADD_RING`: the ring carries packets to the server.
const TO_SERVER: u16 = 1;

impl Message {
    /// Returns a `DISCONNECT` with a reason.
    pub fn disconnect(reason: &impl fmt::Display) -> Message {
        Message::Disconnect {
            code: 0,
            reason: Reason::new(&reason.to_string()),
        }
    }

    /// Returns the name of the message's type.
    pub fn kind(&self) -> &'static str {
        match self {
            Message::Ack => "ACK",
            Message::Hello { .. } => "HELLO",
            Message::Init { .. } => "INIT",
            Message::AddRegion { .. } => "ADD_REGION",
            Message::AddRing(_) => "ADD_RING",
            Message::Connect { .. } => "CONNECT",
            Message::Connected { .. } => "CONNECTED",
            Message::Disconnect { .. } => "DISCONNECT",
        }
    }

    /// Returns the encoded message.
    pub fn encode(&self) -> [u8; MESSAGE_SIZE] {
        let mut out = Writer::default();
        match *self {
            Message::Ack => out.put(&ACK.to_le_bytes()),
            Message::Hello {
                name,
                min_version,
                max_version,
                max_region,
                max_to_client,
                max_to_server,
                max_log2_ring,
            } => {
                out.put(&HELLO.to_le_bytes());
                out.put(&name.0);
                for number in [min_version, max_version, max_region, max_to_client, max_to_server] {
                    out.put(&number.to_le_bytes());
                }
                out.put(&[max_log2_ring]);
            }
            Message::Init {
                version,
                id,
                mode,
                secret,
                name,
            } => {
                out.put(&INIT.to_le_bytes());
                out.put(&version.to_le_bytes());
                out.put(&id.to_le_bytes());
                out.put(&[mode]);
                out.put(&secret);
                out.put(&name.0);
            }
            Message::AddRegion { index, size } => {
                out.put(&ADD_REGION.to_le_bytes());
                out.put(&index.to_le_bytes());
                out.put(&size.to_le_bytes());
            }
            Message::AddRing(ring) => {
                out.put(&ADD_RING.to_le_bytes());
                let flags = match ring.direction {
                    Direction::ToServer => TO_SERVER,
                    Direction::ToClient => 0,
                };
                for number in [flags, ring.index, ring.region] {
                    out.put(&number.to_le_bytes());
                }
                out.put(&ring.offset.to_le_bytes());
                out.put(&[ring.log2_len]);
                out.put(&ring.private_header_size.to_le_bytes());
            }
            Message::Connect { name } => {
                out.put(&CONNECT.to_le_bytes());
                out.put(&name.0);
            }
            Message::Connected { name } => {
                out.put(&CONNECTED.to_le_bytes());
                out.put(&name.0);
            }
            Message::Disconnect { code, reason } => {
                out.put(&DISCONNECT.to_le_bytes());
                out.put(&code.to_le_bytes());
                out.put(&reason.0);
            }
        }
        out.bytes
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`MessageError::MessageSize`] unless there are 128 bytes, [`MessageError::MessageType`] for an unknown type.
    pub fn decode(bytes: &[u8]) -> Result<Message, MessageError> {
        let bytes: &[u8; MESSAGE_SIZE] = bytes
            .try_into()
            .map_err(|_| MessageError::MessageSize { size: bytes.len() })?;
        let mut from = Reader { bytes, at: 0 };
        Ok(match from.u16() {
            ACK => Message::Ack,
            HELLO => Message::Hello {
                name: Name(from.take()),
                min_version: from.u16(),
                max_version: from.u16(),
                max_region: from.u16(),
                max_to_client: from.u16(),
                max_to_server: from.u16(),
                max_log2_ring: from.u8(),
            },
            INIT => Message::Init {
                version: from.u16(),
                id: from.u32(),
                mode: from.u8(),
                secret: from.take(),
                name: Name(from.take()),
            },
            ADD_REGION => Message::AddRegion {
                index: from.u16(),
                size: u64::from_le_bytes(from.take()),
            },
            ADD_RING => {
                let flags = from.u16();
                Message::AddRing(AddRing {
                    direction: if flags & TO_SERVER != 0 {
                        Direction::ToServer
                    } else {
                        Direction::ToClient
                    },
                    index: from.u16(),
                    region: from.u16(),
                    offset: from.u32(),
                    log2_len: from.u8(),
                    private_header_size: from.u16(),
                })
            }
            CONNECT => Message::Connect {
                name: Name(from.take()),
            },
            CONNECTED => Message::Connected {
                name: Name(from.take()),
            },
            DISCONNECT => Message::Disconnect {
                code: from.u32(),
                reason: Reason(from.take()),
            },
            number => return Err(MessageError::MessageType { number }),
        })
    }
}

/// Appends fields to a message. Fields beyond its end are dropped; all fields of every message fit.
struct Writer {
    bytes: [u8; MESSAGE_SIZE],
    at: usize,
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            bytes: [0; MESSAGE_SIZE],
            at: 0,
        }
    }
}

impl Writer {
    fn put(&mut self, part: &[u8]) {
        let end = self.at + part.len();
        if let Some(field) = self.bytes.get_mut(self.at..end) {
            field.copy_from_slice(part);
        }
        self.at = end;
    }
}

/// Reads fields from a message. Beyond its end, where no message has fields, it reads zeros.
struct Reader<'a> {
    bytes: &'a [u8; MESSAGE_SIZE],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let part = self.bytes.get(self.at..self.at + N);
        self.at += N;
        part.and_then(|part| part.try_into().ok()).unwrap_or([0; N])
    }

    fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn every_kind() -> Vec<Message> {
        let name = Name::new("a peer");
        vec![
            Message::Ack,
            Message::Hello {
                name,
                min_version: 0x0200,
                max_version: 0x0201,
                max_region: 3,
                max_to_client: 4,
                max_to_server: 5,
                max_log2_ring: 14,
            },
            Message::Init {
                version: 0x0200,
                id: 0xdead_beef,
                mode: 1,
                secret: [7; 24],
                name,
            },
            Message::AddRegion {
                index: 2,
                size: 0x1_0000_0002,
            },
            Message::AddRing(AddRing {
                direction: Direction::ToServer,
                index: 1,
                region: 2,
                offset: 0x0403_0201,
                log2_len: 10,
                private_header_size: 9,
            }),
            Message::Connect { name },
            Message::Connected { name },
            Message::disconnect(&"over"),
        ]
    }

    #[test]
    fn every_message_decodes_to_what_was_encoded() {
        for message in every_kind() {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    /// The layout is packed, as in libmemif and DPDK.
    #[test]
    fn fields_have_the_offsets_of_other_implementations() {
        let bytes = |at: usize| every_kind()[at].encode();
        assert_eq!(bytes(1)[34..45], [0, 2, 1, 2, 3, 0, 4, 0, 5, 0, 14]);
        assert_eq!(bytes(2)[..9], [3, 0, 0, 2, 0xef, 0xbe, 0xad, 0xde, 1]);
        assert_eq!(bytes(3)[..12], [4, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes(4)[..15], [5, 0, 1, 0, 1, 0, 2, 0, 1, 2, 3, 4, 10, 9, 0]);
    }

    #[test]
    fn a_message_of_another_size_or_type_is_rejected() {
        let bytes = Message::Ack.encode();
        assert_eq!(
            Message::decode(&bytes[..127]),
            Err(MessageError::MessageSize { size: 127 })
        );
        for number in [0, 9, 0xffff] {
            let mut bytes = bytes;
            bytes[..2].copy_from_slice(&u16::to_le_bytes(number));
            assert_eq!(Message::decode(&bytes), Err(MessageError::MessageType { number }));
        }
    }

    #[test]
    fn names_are_truncated_and_shown_without_control_characters() {
        assert_eq!(Name::new(&"x".repeat(40)).to_string().len(), 31);
        assert_eq!(Name::new("a\x1b[2Jb\n").to_string(), "a?[2Jb?");
        assert_eq!(Name([b'y'; 32]).to_string().len(), 32);
    }

    proptest! {
        #[test]
        fn decoded_messages_survive_another_encoding(bytes in prop::collection::vec(any::<u8>(), 128), kind in 0_u16..10) {
            let mut bytes = bytes;
            bytes[..2].copy_from_slice(&kind.to_le_bytes());
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
            }
        }
    }
}
