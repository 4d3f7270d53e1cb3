//! vhost-user messages (QEMU, "Vhost-user Protocol"): a header of 12 bytes with the size of the payload, then
//! the payload.
//!
//! The front-end sends requests; the back-end, which is this crate, answers some of them. Numbers are in the host's
//! byte order, since both processes run on one machine; this crate supports little-endian hosts only.

use crate::error::MessageError;
use crate::limits::REGION_SIZE;
pub use crate::limits::{PAYLOAD_MAX, TABLE_MAX};
use crate::memory::MemoryRegion;

/// Size of a message header, in bytes.
pub const HEADER_SIZE: usize = 12;
/// The protocol version, in bits 0 and 1 of the flags.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// Flag: the message is a reply.
const IS_REPLY: u32 = 1 << 2;
/// Flag: the sender waits for a reply, even to a request that has none (`VHOST_USER_NEED_REPLY`).
const NEEDS_REPLY: u32 = 1 << 3;

/// Bit of a vring payload: no file descriptor accompanies the message, so the sender polls
/// (`VHOST_USER_VRING_NOFD_MASK`).
const NO_FD: u64 = 1 << 8;

/// The header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The request number, such as `VHOST_USER_SET_FEATURES` (2).
    pub request: u32,
    /// True if the sender waits for a reply even to a request that has none.
    pub needs_reply: bool,
    /// Size of the payload in bytes, at most [`PAYLOAD_MAX`].
    pub size: usize,
}

impl Header {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`MessageError::Version`], [`MessageError::Reply`], or [`MessageError::TooLong`].
    pub fn decode(bytes: [u8; HEADER_SIZE]) -> Result<Header, MessageError> {
        let mut from = Reader { bytes: &bytes };
        let (request, flags, size) = (from.u32()?, from.u32()?, from.u32()?);
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version {
                version: flags & VERSION_MASK,
            });
        }
        if flags & IS_REPLY != 0 {
            return Err(MessageError::Reply { request });
        }
        let size = size as usize;
        if size > PAYLOAD_MAX {
            return Err(MessageError::TooLong { request, size });
        }
        Ok(Header {
            request,
            needs_reply: flags & NEEDS_REPLY != 0,
            size,
        })
    }
}

/// Addresses of the three parts of a ring, in the address space of the front-end process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The descriptor table; for a packed ring, the descriptor ring.
    pub descriptors: u64,
    /// The driver area: the available ring; for a packed ring, the driver event suppression structure.
    pub driver: u64,
    /// The device area: the used ring; for a packed ring, the device event suppression structure.
    pub device: u64,
}

/// The part of a request that configures one ring. Even ring numbers are the driver's receive queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingMessage {
    /// The number of descriptors (`SET_VRING_NUM`).
    Size(u32),
    /// The addresses of the ring (`SET_VRING_ADDR`).
    Addresses(Addresses),
    /// The vring base: the index at which the device continues (`SET_VRING_BASE`).
    Base(u32),
    /// Stop the ring; the reply is its vring base (`GET_VRING_BASE`).
    Stop,
    /// Start the ring; the driver notifies the device through this event file descriptor (`SET_VRING_KICK`).
    Kick {
        /// True if a file descriptor accompanies the message.
        has_fd: bool,
    },
    /// The event file descriptor by which the device notifies the driver (`SET_VRING_CALL`).
    Call {
        /// True if a file descriptor accompanies the message.
        has_fd: bool,
    },
    /// The event file descriptor by which the device signals errors (`SET_VRING_ERR`).
    Error {
        /// True if a file descriptor accompanies the message.
        has_fd: bool,
    },
    /// Enable or disable the ring (`SET_VRING_ENABLE`).
    Enable(bool),
}

/// A request of the front-end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// `GET_FEATURES`: which virtio features the device offers.
    GetFeatures,
    /// `SET_FEATURES`: the features that the driver accepts.
    SetFeatures(u64),
    /// `SET_OWNER`: the first request of a session.
    SetOwner,
    /// `RESET_OWNER`: the session starts again.
    ResetOwner,
    /// `SET_MEM_TABLE`: all memory that the driver shares, with one file descriptor for each region.
    SetMemory(Vec<MemoryRegion>),
    /// A request about the ring with this number.
    Ring(u32, RingMessage),
    /// `GET_PROTOCOL_FEATURES`: which protocol features the back-end offers.
    GetProtocolFeatures,
    /// `SET_PROTOCOL_FEATURES`: the protocol features that the front-end accepts.
    SetProtocolFeatures(u64),
    /// `GET_QUEUE_NUM`: how many queue pairs the back-end supports.
    GetQueues,
    /// `NET_SET_MTU`: the MTU of the driver's interface, in bytes.
    SetMtu(u64),
}

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const NET_SET_MTU: u32 = 20;

impl Message {
    /// Decodes the payload of a request.
    ///
    /// # Errors
    /// [`MessageError::Request`] for an unknown request, [`MessageError::Size`] for a payload of the wrong size,
    /// [`MessageError::Table`] for an empty memory table or one with too many regions.
    pub fn decode(request: u32, bytes: &[u8]) -> Result<Message, MessageError> {
        let payload = Payload { request, bytes };
        Ok(match request {
            GET_FEATURES => payload.none(Message::GetFeatures)?,
            SET_FEATURES => Message::SetFeatures(payload.u64()?),
            SET_OWNER => payload.none(Message::SetOwner)?,
            RESET_OWNER => payload.none(Message::ResetOwner)?,
            SET_MEM_TABLE => Message::SetMemory(payload.memory_table()?),
            SET_VRING_NUM => payload.vring_state(RingMessage::Size)?,
            SET_VRING_ADDR => payload.vring_addresses()?,
            SET_VRING_BASE => payload.vring_state(RingMessage::Base)?,
            GET_VRING_BASE => payload.vring_state(|_| RingMessage::Stop)?,
            SET_VRING_KICK => payload.vring_fd(|has_fd| RingMessage::Kick { has_fd })?,
            SET_VRING_CALL => payload.vring_fd(|has_fd| RingMessage::Call { has_fd })?,
            SET_VRING_ERR => payload.vring_fd(|has_fd| RingMessage::Error { has_fd })?,
            GET_PROTOCOL_FEATURES => payload.none(Message::GetProtocolFeatures)?,
            SET_PROTOCOL_FEATURES => Message::SetProtocolFeatures(payload.u64()?),
            GET_QUEUE_NUM => payload.none(Message::GetQueues)?,
            SET_VRING_ENABLE => payload.vring_state(|enable| RingMessage::Enable(enable != 0))?,
            NET_SET_MTU => Message::SetMtu(payload.u64()?),
            request => return Err(MessageError::Request { request }),
        })
    }

    /// Returns the number of file descriptors that must accompany the message.
    pub fn fds(&self) -> usize {
        match self {
            Message::SetMemory(regions) => regions.len(),
            Message::Ring(
                _,
                RingMessage::Kick { has_fd } | RingMessage::Call { has_fd } | RingMessage::Error { has_fd },
            ) => usize::from(*has_fd),
            _ => 0,
        }
    }

    /// Returns the request number.
    pub fn request(&self) -> u32 {
        match self {
            Message::GetFeatures => GET_FEATURES,
            Message::SetFeatures(_) => SET_FEATURES,
            Message::SetOwner => SET_OWNER,
            Message::ResetOwner => RESET_OWNER,
            Message::SetMemory(_) => SET_MEM_TABLE,
            Message::Ring(_, RingMessage::Size(_)) => SET_VRING_NUM,
            Message::Ring(_, RingMessage::Addresses(_)) => SET_VRING_ADDR,
            Message::Ring(_, RingMessage::Base(_)) => SET_VRING_BASE,
            Message::Ring(_, RingMessage::Stop) => GET_VRING_BASE,
            Message::Ring(_, RingMessage::Kick { .. }) => SET_VRING_KICK,
            Message::Ring(_, RingMessage::Call { .. }) => SET_VRING_CALL,
            Message::Ring(_, RingMessage::Error { .. }) => SET_VRING_ERR,
            Message::GetProtocolFeatures => GET_PROTOCOL_FEATURES,
            Message::SetProtocolFeatures(_) => SET_PROTOCOL_FEATURES,
            Message::GetQueues => GET_QUEUE_NUM,
            Message::Ring(_, RingMessage::Enable(_)) => SET_VRING_ENABLE,
            Message::SetMtu(_) => NET_SET_MTU,
        }
    }

    /// Encodes header and payload, as a front-end sends them.
    pub fn encode(&self, needs_reply: bool) -> Vec<u8> {
        let mut payload = Vec::new();
        match self {
            Message::GetFeatures
            | Message::SetOwner
            | Message::ResetOwner
            | Message::GetProtocolFeatures
            | Message::GetQueues => {}
            Message::SetFeatures(number) | Message::SetProtocolFeatures(number) | Message::SetMtu(number) => {
                payload.extend(number.to_le_bytes());
            }
            Message::SetMemory(regions) => {
                payload.extend((regions.len() as u64).to_le_bytes());
                for region in regions {
                    for number in [region.guest, region.size, region.user, region.offset] {
                        payload.extend(number.to_le_bytes());
                    }
                }
            }
            Message::Ring(ring, RingMessage::Addresses(at)) => {
                payload.extend(u64::from(*ring).to_le_bytes());
                for number in [at.descriptors, at.device, at.driver, 0] {
                    payload.extend(number.to_le_bytes());
                }
            }
            Message::Ring(
                ring,
                RingMessage::Kick { has_fd } | RingMessage::Call { has_fd } | RingMessage::Error { has_fd },
            ) => {
                let no_fd = if *has_fd { 0 } else { NO_FD };
                payload.extend((u64::from(*ring & 0xff) | no_fd).to_le_bytes());
            }
            Message::Ring(ring, message) => {
                let number = match message {
                    RingMessage::Size(number) | RingMessage::Base(number) => *number,
                    RingMessage::Enable(enable) => u32::from(*enable),
                    _ => 0,
                };
                payload.extend(ring.to_le_bytes());
                payload.extend(number.to_le_bytes());
            }
        }
        let flags = VERSION | if needs_reply { NEEDS_REPLY } else { 0 };
        with_header(self.request(), flags, &payload)
    }
}

/// A reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    request: u32,
    number: u64,
}

impl Reply {
    /// Returns a reply that carries one number.
    pub fn number(request: u32, number: u64) -> Reply {
        Reply { request, number }
    }

    /// Returns a reply that carries a ring number and a value.
    pub fn of_ring(request: u32, ring: u32, number: u32) -> Reply {
        Reply {
            request,
            number: u64::from(number) << 32 | u64::from(ring),
        }
    }

    /// Size of an encoded reply, in bytes.
    pub const SIZE: usize = HEADER_SIZE + 8;

    /// Encodes header and payload.
    pub fn encode(&self) -> Vec<u8> {
        with_header(self.request, VERSION | IS_REPLY, &self.number.to_le_bytes())
    }

    /// Decodes a reply to the request `asked` and returns its number.
    ///
    /// # Errors
    /// [`MessageError::Version`], [`MessageError::NoReply`], or [`MessageError::Size`].
    pub fn decode(asked: u32, bytes: [u8; Reply::SIZE]) -> Result<u64, MessageError> {
        let mut from = Reader { bytes: &bytes };
        let (request, flags, size) = (from.u32()?, from.u32()?, from.u32()?);
        if flags & VERSION_MASK != VERSION {
            return Err(MessageError::Version {
                version: flags & VERSION_MASK,
            });
        }
        if request != asked || flags & IS_REPLY == 0 {
            return Err(MessageError::NoReply { request, asked });
        }
        if size != 8 {
            return Err(MessageError::Size {
                request,
                size: size as usize,
                expected: 8,
            });
        }
        from.u64()
    }
}

fn with_header(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE + payload.len());
    for number in [request, flags, payload.len() as u32] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(payload);
    bytes
}

/// The undecoded payload of a request.
///
/// Three layouts are common to several requests (all fields little-endian):
///
/// ```text
/// u64              |                    value                     |
/// vring_state      |      ring (32 bits)  |    value (32 bits)    |
/// vring_fd         | ring (bits 0..=7) | no fd (bit 8) | reserved |
/// ```
#[derive(Clone, Copy)]
struct Payload<'a> {
    request: u32,
    bytes: &'a [u8],
}

impl Payload<'_> {
    /// Returns the error for a payload that should be `expected` bytes long.
    fn wrong_size(&self, expected: usize) -> MessageError {
        MessageError::Size {
            request: self.request,
            size: self.bytes.len(),
            expected,
        }
    }

    /// Checks that the payload is empty. Some drivers send a 64-bit word with requests that have no payload.
    fn none(&self, message: Message) -> Result<Message, MessageError> {
        match self.bytes.len() {
            0 | 8 => Ok(message),
            _ => Err(self.wrong_size(0)),
        }
    }

    fn u64(&self) -> Result<u64, MessageError> {
        let bytes = self.bytes.try_into().map_err(|_| self.wrong_size(8))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn vring_state(&self, message: impl FnOnce(u32) -> RingMessage) -> Result<Message, MessageError> {
        let word = self.u64()?;
        Ok(Message::Ring(word as u32, message((word >> 32) as u32)))
    }

    fn vring_fd(&self, message: impl FnOnce(bool) -> RingMessage) -> Result<Message, MessageError> {
        let word = self.u64()?;
        Ok(Message::Ring((word & 0xff) as u32, message(word & NO_FD == 0)))
    }

    /// Decodes `struct vhost_vring_addr`, whose log address is ignored.
    fn vring_addresses(&self) -> Result<Message, MessageError> {
        if self.bytes.len() != 40 {
            return Err(self.wrong_size(40));
        }
        let mut from = Reader { bytes: self.bytes };
        let ring = from.u32()?;
        let _flags = from.u32()?;
        let (descriptors, device, driver) = (from.u64()?, from.u64()?, from.u64()?);
        let addresses = Addresses {
            descriptors,
            driver,
            device,
        };
        Ok(Message::Ring(ring, RingMessage::Addresses(addresses)))
    }

    /// Decodes a memory table. Some drivers also send the entries of regions that they do not use.
    fn memory_table(&self) -> Result<Vec<MemoryRegion>, MessageError> {
        let mut from = Reader { bytes: self.bytes };
        let regions = from.u32().map_err(|_| self.wrong_size(8))? as usize;
        let _padding = from.u32().map_err(|_| self.wrong_size(8))?;
        if !(1..=TABLE_MAX).contains(&regions) {
            return Err(MessageError::Table { regions });
        }
        let size = 8 + regions * REGION_SIZE;
        if self.bytes.len() < size {
            return Err(self.wrong_size(size));
        }
        (0..regions).map(|_| from.region()).collect()
    }
}

/// Reads numbers from the front of a byte slice.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(MessageError::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_le_bytes)
    }

    fn region(&mut self) -> Result<MemoryRegion, MessageError> {
        Ok(MemoryRegion {
            guest: self.u64()?,
            size: self.u64()?,
            user: self.u64()?,
            offset: self.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<(Header, Message), MessageError> {
        let (header, payload) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(*header)?;
        Ok((header, Message::decode(header.request, payload)?))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let region = MemoryRegion {
            guest: 1 << 40,
            size: 4096,
            user: 0x7f00_0000_0000,
            offset: 8192,
        };
        let at = Addresses {
            descriptors: 1,
            driver: 2,
            device: 3,
        };
        let of_ring = [
            RingMessage::Size(256),
            RingMessage::Addresses(at),
            RingMessage::Base(0x8000_8000),
            RingMessage::Stop,
            RingMessage::Kick { has_fd: false },
            RingMessage::Call { has_fd: true },
            RingMessage::Error { has_fd: true },
            RingMessage::Enable(true),
        ];
        let mut messages = vec![
            Message::GetFeatures,
            Message::SetFeatures(1 << 32),
            Message::SetOwner,
            Message::ResetOwner,
            Message::SetMemory(vec![region; TABLE_MAX]),
            Message::GetProtocolFeatures,
            Message::SetProtocolFeatures(9),
            Message::GetQueues,
            Message::SetMtu(9000),
        ];
        messages.extend(of_ring.map(|message| Message::Ring(3, message)));
        for message in messages {
            for needs_reply in [false, true] {
                let bytes = message.encode(needs_reply);
                let (header, read) = parse(&bytes).unwrap();
                assert_eq!(read, message);
                assert_eq!(
                    (header.needs_reply, header.size),
                    (needs_reply, bytes.len() - HEADER_SIZE)
                );
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_a_driver() {
        // SET_VRING_ADDR of ring 1 as QEMU 7.2 sends it: the used ring's address precedes the available ring's.
        let mut bytes = vec![9, 0, 0, 0, 1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for number in [0x1000_u64, 0x3000, 0x2000, 0] {
            bytes.extend(number.to_le_bytes());
        }
        let at = Addresses {
            descriptors: 0x1000,
            driver: 0x2000,
            device: 0x3000,
        };
        assert_eq!(
            parse(&bytes).unwrap().1,
            Message::Ring(1, RingMessage::Addresses(at))
        );
        let reply = Reply::of_ring(GET_VRING_BASE, 1, 7).encode();
        assert_eq!(
            reply,
            [11, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0]
        );
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_name() {
        let header = |request: u32, flags: u32, size: u32| {
            let bytes: Vec<u8> = [request, flags, size]
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect();
            Header::decode(bytes.try_into().unwrap())
        };
        assert_eq!(header(1, 0, 0), Err(MessageError::Version { version: 0 }));
        assert_eq!(header(1, 5, 0), Err(MessageError::Reply { request: 1 }));
        let too_long = MessageError::TooLong {
            request: 5,
            size: 265,
        };
        assert_eq!(header(5, 1, 265), Err(too_long));
        assert_eq!(
            Message::decode(200, &[]),
            Err(MessageError::Request { request: 200 })
        );
        assert_eq!(Message::decode(0, &[]), Err(MessageError::Request { request: 0 }));
        let short = MessageError::Size {
            request: SET_VRING_NUM,
            size: 4,
            expected: 8,
        };
        assert_eq!(Message::decode(SET_VRING_NUM, &[0; 4]), Err(short));
        for regions in [0_u8, 9, 255] {
            let mut table = [0; PAYLOAD_MAX];
            table[0] = regions;
            let error = MessageError::Table {
                regions: regions.into(),
            };
            assert_eq!(Message::decode(SET_MEM_TABLE, &table), Err(error));
        }
        let mut table = vec![0; 8 + 32];
        table[0] = 2;
        assert!(matches!(
            Message::decode(SET_MEM_TABLE, &table),
            Err(MessageError::Size { .. })
        ));
    }
}
