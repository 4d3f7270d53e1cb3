//! The messages of vhost-user (QEMU's "Vhost-user Protocol"): a header of 12 bytes, and as many bytes behind it as that says.
//!
//! The driver's side asks, we answer some of it. Numbers are in the byte order of the machine, on which both processes run;
//! the ones that this is built for are little endian.

use crate::memory::Span;
use crate::refusal::Refusal;

/// Bytes of a header.
pub const HEADER_SIZE: usize = 12;
/// Regions of a table of memory.
pub const TABLE_MAX: usize = 8;
/// Bytes of the longest payload that is heard: a table of [`TABLE_MAX`] regions.
pub const PAYLOAD_MAX: usize = 8 + TABLE_MAX * REGION_SIZE;

const REGION_SIZE: usize = 32;

/// The version of every message, in the two lowest bits of its flags.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// It is an answer.
const IS_REPLY: u32 = 1 << 2;
/// The sender waits for an answer, whatever it asked for.
const NEEDS_REPLY: u32 = 1 << 3;

/// No file comes along: the sender does not want to be woken, or polls.
const NO_FILE: u64 = 1 << 8;

/// What a message begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What is asked for.
    pub request: u32,
    /// Whether the sender waits for an answer even where the request has none.
    pub needs_reply: bool,
    /// Bytes of the payload: at most [`PAYLOAD_MAX`].
    pub size: usize,
}

impl Header {
    /// What some bytes say.
    ///
    /// # Errors
    /// [`Refusal::Version`], [`Refusal::Reply`], or [`Refusal::TooLong`].
    pub fn decode(bytes: [u8; HEADER_SIZE]) -> Result<Header, Refusal> {
        let mut from = Reader { bytes: &bytes };
        let (request, flags, size) = (from.u32()?, from.u32()?, from.u32()?);
        if flags & VERSION_MASK != VERSION {
            return Err(Refusal::Version {
                version: flags & VERSION_MASK,
            });
        }
        if flags & IS_REPLY != 0 {
            return Err(Refusal::Reply { request });
        }
        let size = size as usize;
        if size > PAYLOAD_MAX {
            return Err(Refusal::TooLong { request, size });
        }
        Ok(Header {
            request,
            needs_reply: flags & NEEDS_REPLY != 0,
            size,
        })
    }
}

/// Where the three parts of a ring are: in the address space of the driver's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// The descriptors; of a packed ring, all of it.
    pub descriptors: u64,
    /// What the driver writes: the ring of what is available; of a packed ring, its wishes for being woken.
    pub driver: u64,
    /// What the device writes: the ring of what was used; of a packed ring, its wishes.
    pub device: u64,
}

/// Something about one ring of a driver. Even ones are those that it receives from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingMessage {
    /// How many descriptors it has.
    Size(u32),
    /// Where it is.
    Place(Addresses),
    /// Where to go on.
    Base(u32),
    /// It stops, and the answer is where.
    Stop,
    /// It starts; a file may come along by which the driver would wake us.
    Kick {
        /// Whether one does.
        has_file: bool,
    },
    /// By which file the driver is woken.
    Call {
        /// Whether one comes along.
        has_file: bool,
    },
    /// By which file the driver would hear of errors.
    Error {
        /// Whether one comes along.
        has_file: bool,
    },
    /// Whether packets may flow.
    Enable(bool),
}

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks what is offered.
    GetFeatures,
    /// What the driver takes of it.
    SetFeatures(u64),
    /// The first word.
    SetOwner,
    /// The driver starts anew.
    ResetOwner,
    /// All memory that the driver shares, with a file for each region.
    SetMemory(Vec<Span>),
    /// Something about one ring.
    Ring(u32, RingMessage),
    /// Asks which parts of the protocol are spoken.
    GetProtocolFeatures,
    /// Those that will be.
    SetProtocolFeatures(u64),
    /// Asks for how many pairs of queues there is room.
    GetQueues,
    /// The longest payload of the driver's packets, in bytes.
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
    /// What the bytes behind a header say.
    ///
    /// # Errors
    /// [`Refusal::Request`] where there is no such request, [`Refusal::Size`] unless there are as many bytes as it has,
    /// [`Refusal::Table`] for a table of none or of too many.
    pub fn decode(request: u32, payload: &[u8]) -> Result<Message, Refusal> {
        let wrong = |expected| Refusal::Size {
            request,
            size: payload.len(),
            expected,
        };
        let mut from = Reader { bytes: payload };
        let number = || match *payload {
            [a, b, c, d, e, f, g, h] => Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => Err(wrong(8)),
        };
        // A ring and a number, in one.
        let of_ring = || number().map(|both| (both as u32, (both >> 32) as u32));
        let with_file = || number().map(|number| ((number & 0xff) as u32, number & NO_FILE == 0));
        // Some drivers send a word with what has none.
        let plain = |message| match payload.len() {
            0 | 8 => Ok(message),
            _ => Err(wrong(0)),
        };
        match request {
            GET_FEATURES => plain(Message::GetFeatures),
            SET_FEATURES => number().map(Message::SetFeatures),
            SET_OWNER => plain(Message::SetOwner),
            RESET_OWNER => plain(Message::ResetOwner),
            SET_MEM_TABLE => {
                let regions = from.u32().map_err(|_| wrong(8))? as usize;
                from.u32().map_err(|_| wrong(8))?;
                if !(1..=TABLE_MAX).contains(&regions) {
                    return Err(Refusal::Table { regions });
                }
                // Some drivers send the places of those that they do not have, too.
                if payload.len() < 8 + regions * REGION_SIZE {
                    return Err(wrong(8 + regions * REGION_SIZE));
                }
                let span = |_| {
                    Ok(Span {
                        guest: from.u64()?,
                        size: from.u64()?,
                        user: from.u64()?,
                        offset: from.u64()?,
                    })
                };
                (0..regions)
                    .map(span)
                    .collect::<Result<_, Refusal>>()
                    .map(Message::SetMemory)
            }
            SET_VRING_NUM => of_ring().map(|(ring, size)| Message::Ring(ring, RingMessage::Size(size))),
            SET_VRING_ADDR => {
                if payload.len() != 40 {
                    return Err(wrong(40));
                }
                let ring = from.u32()?;
                let _flags = from.u32()?;
                let (descriptors, device, driver) = (from.u64()?, from.u64()?, from.u64()?);
                let addresses = Addresses {
                    descriptors,
                    driver,
                    device,
                };
                Ok(Message::Ring(ring, RingMessage::Place(addresses)))
            }
            SET_VRING_BASE => of_ring().map(|(ring, base)| Message::Ring(ring, RingMessage::Base(base))),
            GET_VRING_BASE => of_ring().map(|(ring, _)| Message::Ring(ring, RingMessage::Stop)),
            SET_VRING_KICK => {
                with_file().map(|(ring, has_file)| Message::Ring(ring, RingMessage::Kick { has_file }))
            }
            SET_VRING_CALL => {
                with_file().map(|(ring, has_file)| Message::Ring(ring, RingMessage::Call { has_file }))
            }
            SET_VRING_ERR => {
                with_file().map(|(ring, has_file)| Message::Ring(ring, RingMessage::Error { has_file }))
            }
            GET_PROTOCOL_FEATURES => plain(Message::GetProtocolFeatures),
            SET_PROTOCOL_FEATURES => number().map(Message::SetProtocolFeatures),
            GET_QUEUE_NUM => plain(Message::GetQueues),
            SET_VRING_ENABLE => {
                of_ring().map(|(ring, enable)| Message::Ring(ring, RingMessage::Enable(enable != 0)))
            }
            NET_SET_MTU => number().map(Message::SetMtu),
            request => Err(Refusal::Request { request }),
        }
    }

    /// How many files come along.
    pub fn files(&self) -> usize {
        match self {
            Message::SetMemory(spans) => spans.len(),
            Message::Ring(
                _,
                RingMessage::Kick { has_file }
                | RingMessage::Call { has_file }
                | RingMessage::Error { has_file },
            ) => usize::from(*has_file),
            _ => 0,
        }
    }

    /// Its number.
    pub fn request(&self) -> u32 {
        match self {
            Message::GetFeatures => GET_FEATURES,
            Message::SetFeatures(_) => SET_FEATURES,
            Message::SetOwner => SET_OWNER,
            Message::ResetOwner => RESET_OWNER,
            Message::SetMemory(_) => SET_MEM_TABLE,
            Message::Ring(_, RingMessage::Size(_)) => SET_VRING_NUM,
            Message::Ring(_, RingMessage::Place(_)) => SET_VRING_ADDR,
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

    /// Its bytes, as a driver sends them: header and payload.
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
            Message::SetMemory(spans) => {
                payload.extend((spans.len() as u64).to_le_bytes());
                for span in spans {
                    for number in [span.guest, span.size, span.user, span.offset] {
                        payload.extend(number.to_le_bytes());
                    }
                }
            }
            Message::Ring(ring, RingMessage::Place(at)) => {
                payload.extend(u64::from(*ring).to_le_bytes());
                for number in [at.descriptors, at.device, at.driver, 0] {
                    payload.extend(number.to_le_bytes());
                }
            }
            Message::Ring(
                ring,
                RingMessage::Kick { has_file }
                | RingMessage::Call { has_file }
                | RingMessage::Error { has_file },
            ) => {
                let no_file = if *has_file { 0 } else { NO_FILE };
                payload.extend((u64::from(*ring & 0xff) | no_file).to_le_bytes());
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

/// What we answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    request: u32,
    number: u64,
}

impl Reply {
    /// A number, upon a request.
    pub fn number(request: u32, number: u64) -> Reply {
        Reply { request, number }
    }

    /// A number that belongs to a ring, upon a request.
    pub fn of_ring(request: u32, ring: u32, number: u32) -> Reply {
        Reply {
            request,
            number: u64::from(number) << 32 | u64::from(ring),
        }
    }

    /// Bytes of an answer.
    pub const SIZE: usize = HEADER_SIZE + 8;

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        with_header(self.request, VERSION | IS_REPLY, &self.number.to_le_bytes())
    }

    /// The number that answers a request.
    ///
    /// # Errors
    /// [`Refusal::Version`], [`Refusal::NoReply`], or [`Refusal::Size`].
    pub fn decode(asked: u32, bytes: [u8; Reply::SIZE]) -> Result<u64, Refusal> {
        let mut from = Reader { bytes: &bytes };
        let (request, flags, size) = (from.u32()?, from.u32()?, from.u32()?);
        if flags & VERSION_MASK != VERSION {
            return Err(Refusal::Version {
                version: flags & VERSION_MASK,
            });
        }
        if request != asked || flags & IS_REPLY == 0 {
            return Err(Refusal::NoReply { request, asked });
        }
        if size != 8 {
            return Err(Refusal::Size {
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

/// Takes numbers from the front.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(Refusal::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<(Header, Message), Refusal> {
        let (header, payload) = bytes.split_first_chunk().unwrap();
        let header = Header::decode(*header)?;
        Ok((header, Message::decode(header.request, payload)?))
    }

    #[test]
    fn what_is_written_is_read_again() {
        let span = Span {
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
            RingMessage::Place(at),
            RingMessage::Base(0x8000_8000),
            RingMessage::Stop,
            RingMessage::Kick { has_file: false },
            RingMessage::Call { has_file: true },
            RingMessage::Error { has_file: true },
            RingMessage::Enable(true),
        ];
        let mut messages = vec![
            Message::GetFeatures,
            Message::SetFeatures(1 << 32),
            Message::SetOwner,
            Message::ResetOwner,
            Message::SetMemory(vec![span; TABLE_MAX]),
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
        // As QEMU 7.2 sends SET_VRING_ADDR of ring 1: used lies before avail.
        let mut bytes = vec![9, 0, 0, 0, 1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for number in [0x1000_u64, 0x3000, 0x2000, 0] {
            bytes.extend(number.to_le_bytes());
        }
        let at = Addresses {
            descriptors: 0x1000,
            driver: 0x2000,
            device: 0x3000,
        };
        assert_eq!(parse(&bytes).unwrap().1, Message::Ring(1, RingMessage::Place(at)));
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
        assert_eq!(header(1, 0, 0), Err(Refusal::Version { version: 0 }));
        assert_eq!(header(1, 5, 0), Err(Refusal::Reply { request: 1 }));
        let too_long = Refusal::TooLong {
            request: 5,
            size: 265,
        };
        assert_eq!(header(5, 1, 265), Err(too_long));
        assert_eq!(Message::decode(200, &[]), Err(Refusal::Request { request: 200 }));
        assert_eq!(Message::decode(0, &[]), Err(Refusal::Request { request: 0 }));
        let short = Refusal::Size {
            request: SET_VRING_NUM,
            size: 4,
            expected: 8,
        };
        assert_eq!(Message::decode(SET_VRING_NUM, &[0; 4]), Err(short));
        for regions in [0_u8, 9, 255] {
            let mut table = [0; PAYLOAD_MAX];
            table[0] = regions;
            let refusal = Refusal::Table {
                regions: regions.into(),
            };
            assert_eq!(Message::decode(SET_MEM_TABLE, &table), Err(refusal));
        }
        let mut table = vec![0; 8 + 32];
        table[0] = 2;
        assert!(matches!(
            Message::decode(SET_MEM_TABLE, &table),
            Err(Refusal::Size { .. })
        ));
    }
}
