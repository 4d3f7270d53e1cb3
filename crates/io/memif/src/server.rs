//! The server's side of the control channel, without IO.
//!
//! ```text
//!            INIT              ADD_REGION, ADD_RING
//! Greeted ----------> Offering ----+
//!                     |   ^        |
//!             CONNECT |   +--------+
//!                     v
//!                 Connected
//! ```
//! `DISCONNECT` ends the session in every state; any other message is a [`MessageError`].

use crate::direction::Direction;
use crate::error::MessageError;
use crate::message::{AddRing, Message, Name};
use crate::region::ring_size;
use crate::{LOG2_RING_MAX, REGIONS_MAX, REGIONS_SIZE_MAX, VERSION};

/// The number of rings that a client may have in each direction, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Rings to the server.
    pub to_server: u16,
    /// Rings to the client.
    pub to_client: u16,
}

/// The regions and rings that a client shares. `F` is the type of a file descriptor.
#[derive(PartialEq, Eq, Debug)]
pub struct Offer<F> {
    /// The name of the client's program.
    pub program: Name,
    /// The name of the client's interface.
    pub interface: Name,
    /// Size in bytes and file descriptor of each region.
    pub regions: Vec<(u64, F)>,
    /// Rings to the server by index, each with its eventfd. They lie within the sizes of the regions.
    pub to_server: Vec<(AddRing, F)>,
    /// Rings to the client by index, each with its eventfd.
    pub to_client: Vec<(AddRing, F)>,
}

/// The action that follows a message.
#[derive(PartialEq, Eq, Debug)]
pub enum Step<F> {
    /// Send this reply.
    Reply(Message),
    /// Map the regions, and reply with [`Message::Connected`].
    Connect(Box<Offer<F>>),
    /// The client closes the connection.
    Closed,
}

enum State<F> {
    /// The server has sent HELLO.
    Greeted,
    /// The client has an interface, and describes its regions and rings.
    Offering(Limits, Box<Offer<F>>),
    /// Packets may flow; the client may only disconnect.
    Connected,
}

/// The control channel of one client.
pub struct Session<F> {
    state: State<F>,
}

impl<F> Default for Session<F> {
    fn default() -> Self {
        Session {
            state: State::Greeted,
        }
    }
}

impl<F> Session<F> {
    /// Returns the message that greets a client, with the limits of this socket.
    pub fn hello(name: &str, limits: Limits) -> Message {
        Message::Hello {
            name: Name::new(name),
            min_version: VERSION,
            max_version: VERSION,
            max_region: REGIONS_MAX as u16 - 1,
            max_to_client: limits.to_client - 1,
            max_to_server: limits.to_server - 1,
            max_log2_ring: LOG2_RING_MAX,
        }
    }

    /// Returns true if the client has completed the handshake.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Handles a message with an optional file descriptor. `interface` is called once, with the id of the interface that the
    /// client wants, and returns the limits of that interface or the reason to reject the client.
    ///
    /// # Errors
    /// [`MessageError`]: the caller sends it to the client in a `DISCONNECT`, and closes the connection.
    pub fn receive(
        &mut self,
        message: &Message,
        file: Option<F>,
        interface: impl FnOnce(u32) -> Result<Limits, MessageError>,
    ) -> Result<Step<F>, MessageError> {
        if let Message::Disconnect { .. } = message {
            return Ok(Step::Closed);
        }
        let unexpected = |expected| MessageError::Unexpected {
            message: message.kind(),
            expected,
        };
        match &mut self.state {
            State::Greeted => {
                let Message::Init {
                    version,
                    id,
                    mode,
                    name,
                    ..
                } = *message
                else {
                    return Err(unexpected("INIT"));
                };
                if version != VERSION {
                    return Err(MessageError::Version { version });
                }
                if mode != 0 {
                    return Err(MessageError::Mode { mode });
                }
                let limits = interface(id)?;
                let offer = Offer {
                    program: name,
                    interface: Name::default(),
                    regions: Vec::new(),
                    to_server: Vec::new(),
                    to_client: Vec::new(),
                };
                self.state = State::Offering(limits, Box::new(offer));
                Ok(Step::Reply(Message::Ack))
            }
            State::Offering(limits, offer) => match *message {
                Message::AddRegion { index, size } => {
                    offer.add_region(index, size, file)?;
                    Ok(Step::Reply(Message::Ack))
                }
                Message::AddRing(ring) => {
                    offer.add_ring(ring, file, *limits)?;
                    Ok(Step::Reply(Message::Ack))
                }
                Message::Connect { name } => {
                    offer.check_rings()?;
                    let State::Offering(_, mut offer) = core::mem::replace(&mut self.state, State::Connected)
                    else {
                        return Ok(Step::Closed);
                    };
                    offer.interface = name;
                    Ok(Step::Connect(offer))
                }
                _ => Err(unexpected("ADD_REGION, ADD_RING or CONNECT")),
            },
            State::Connected => Err(unexpected("DISCONNECT")),
        }
    }
}

impl<F> Offer<F> {
    fn add_region(&mut self, index: u16, size: u64, file: Option<F>) -> Result<(), MessageError> {
        let expected = self.regions.len();
        if expected == REGIONS_MAX {
            return Err(MessageError::Regions);
        }
        if usize::from(index) != expected {
            return Err(MessageError::RegionIndex { index, expected });
        }
        let before: u64 = self.regions.iter().map(|(size, _)| size).sum();
        if size == 0 || size > REGIONS_SIZE_MAX - before {
            return Err(MessageError::RegionSize { index, size });
        }
        let file = file.ok_or(MessageError::NoFile {
            message: "ADD_REGION",
            expected: "a memfd",
        })?;
        self.regions.push((size, file));
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, file: Option<F>, limits: Limits) -> Result<(), MessageError> {
        let AddRing {
            direction,
            index,
            region,
            offset,
            log2_len,
            private_header_size,
        } = ring;
        let (rings, max) = match direction {
            Direction::ToServer => (&mut self.to_server, limits.to_server),
            Direction::ToClient => (&mut self.to_client, limits.to_client),
        };
        if index >= max {
            return Err(MessageError::RingIndex {
                direction,
                index,
                rings: max,
            });
        }
        let at = match rings.binary_search_by_key(&index, |(ring, _)| ring.index) {
            Ok(_) => return Err(MessageError::RingTwice { direction, index }),
            Err(at) => at,
        };
        let size = ring_size(log2_len).ok_or(MessageError::RingLength {
            direction,
            index,
            log2_len,
        })?;
        let room = self.regions.get(usize::from(region)).map_or(0, |(size, _)| *size);
        if u64::from(offset) + u64::from(size) > room || !offset.is_multiple_of(16) {
            return Err(MessageError::RingOutside {
                direction,
                index,
                region,
                offset,
            });
        }
        if private_header_size != 0 {
            return Err(MessageError::PrivateHeader {
                size: private_header_size,
            });
        }
        let file = file.ok_or(MessageError::NoFile {
            message: "ADD_RING",
            expected: "an eventfd",
        })?;
        rings.insert(at, (ring, file));
        Ok(())
    }

    fn check_rings(&self) -> Result<(), MessageError> {
        for (direction, rings) in [
            (Direction::ToServer, &self.to_server),
            (Direction::ToClient, &self.to_client),
        ] {
            // The rings are sorted by index, without duplicates.
            let is_whole = rings
                .last()
                .is_some_and(|(ring, _)| usize::from(ring.index) + 1 == rings.len());
            if !is_whole {
                return Err(MessageError::RingsMissing { direction });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        to_server: 2,
        to_client: 2,
    };

    fn init(id: u32) -> Message {
        Message::Init {
            version: VERSION,
            id,
            mode: 0,
            secret: [0; 24],
            name: Name::new("test"),
        }
    }

    fn region(index: u16, size: u64) -> Message {
        Message::AddRegion { index, size }
    }

    fn ring(direction: Direction, index: u16) -> AddRing {
        AddRing {
            direction,
            index,
            region: 0,
            offset: 0,
            log2_len: 4,
            private_header_size: 0,
        }
    }

    fn connect() -> Message {
        Message::Connect {
            name: Name::new("m0"),
        }
    }

    /// Handles messages with file descriptors, and returns the last result.
    fn handle(messages: &[Message]) -> Result<Step<u8>, MessageError> {
        let mut session = Session::default();
        let mut last = Ok(Step::Closed);
        for message in messages {
            last = session.receive(message, Some(1), |id| match id {
                7 => Ok(LIMITS),
                id => Err(MessageError::NoInterface { id }),
            });
            if last.is_err() {
                break;
            }
        }
        last
    }

    #[test]
    fn a_client_that_sends_all_messages_in_order_is_connected() {
        let both =
            [Direction::ToServer, Direction::ToClient].map(|direction| Message::AddRing(ring(direction, 0)));
        let last = handle(&[init(7), region(0, 4096), both[0], both[1], connect()]);
        let Ok(Step::Connect(offer)) = last else {
            panic!("{last:?}")
        };
        assert_eq!(offer.regions, [(4096, 1)]);
        assert_eq!((offer.to_server.len(), offer.to_client.len()), (1, 1));
        assert_eq!(offer.interface.to_string(), "m0");
    }

    #[test]
    fn messages_in_the_wrong_state_are_rejected() {
        for messages in [
            vec![Message::Ack],
            vec![region(0, 4096)],
            vec![connect()],
            vec![init(7), init(7)],
            vec![init(7), Message::Ack],
            vec![init(7), Session::<u8>::hello("x", LIMITS)],
        ] {
            assert!(
                matches!(handle(&messages), Err(MessageError::Unexpected { .. })),
                "{messages:?}"
            );
        }
        assert_eq!(handle(&[init(8)]), Err(MessageError::NoInterface { id: 8 }));
        assert_eq!(
            handle(&[init(7), connect()]),
            Err(MessageError::RingsMissing {
                direction: Direction::ToServer
            })
        );
    }

    #[test]
    fn regions_are_numbered_in_order_and_limited() {
        let wrong = |more: &[Message]| handle(&[&[init(7)], more].concat()).unwrap_err();
        assert_eq!(
            wrong(&[region(1, 4096)]),
            MessageError::RegionIndex {
                index: 1,
                expected: 0
            }
        );
        let many: Vec<Message> = (0..=REGIONS_MAX as u16).map(|index| region(index, 1)).collect();
        assert_eq!(wrong(&many), MessageError::Regions);
        for size in [0, REGIONS_SIZE_MAX + 1, u64::MAX] {
            assert_eq!(
                wrong(&[region(0, size)]),
                MessageError::RegionSize { index: 0, size }
            );
        }
        let size = REGIONS_SIZE_MAX;
        assert_eq!(
            wrong(&[region(0, size), region(1, 1)]),
            MessageError::RegionSize { index: 1, size: 1 }
        );
    }

    #[test]
    fn rings_lie_within_existing_regions() {
        let wrong = |ring: AddRing| handle(&[init(7), region(0, 4096), Message::AddRing(ring)]).unwrap_err();
        let right = ring(Direction::ToServer, 0);
        for (offset, region, log2_len) in [
            (4096 - 16, 0, 4),
            (8, 0, 4),
            (u32::MAX - 15, 0, 4),
            (0, 1, 4),
            (0, 0xffff, 4),
            (0, 0, 14),
        ] {
            let place = AddRing {
                offset,
                region,
                log2_len,
                ..right
            };
            assert!(
                matches!(wrong(place), MessageError::RingOutside { .. }),
                "{place:?}"
            );
        }
        for log2_len in [15, 16, 31, 64, 255] {
            assert!(matches!(
                wrong(AddRing { log2_len, ..right }),
                MessageError::RingLength { .. }
            ));
        }
        assert!(matches!(
            wrong(AddRing { index: 2, ..right }),
            MessageError::RingIndex { rings: 2, .. }
        ));
        assert!(matches!(
            wrong(AddRing {
                private_header_size: 8,
                ..right
            }),
            MessageError::PrivateHeader { size: 8 }
        ));
        let twice = handle(&[
            init(7),
            region(0, 4096),
            Message::AddRing(right),
            Message::AddRing(right),
        ]);
        assert!(matches!(twice, Err(MessageError::RingTwice { .. })));
        let gap = [ring(Direction::ToServer, 1), ring(Direction::ToClient, 0)].map(Message::AddRing);
        let gap = handle(&[init(7), region(0, 4096), gap[0], gap[1], connect()]);
        assert!(matches!(gap, Err(MessageError::RingsMissing { .. })));
    }

    #[test]
    fn regions_and_rings_need_their_file_descriptors() {
        let mut session = Session::<u8>::default();
        session.receive(&init(7), None, |_| Ok(LIMITS)).unwrap();
        let never = |_| Err(MessageError::TooSlow);
        assert!(matches!(
            session.receive(&region(0, 4096), None, never),
            Err(MessageError::NoFile { .. })
        ));
        session.receive(&region(0, 4096), Some(1), never).unwrap();
        let ring = Message::AddRing(ring(Direction::ToClient, 0));
        assert!(matches!(
            session.receive(&ring, None, never),
            Err(MessageError::NoFile { .. })
        ));
    }

    #[test]
    fn unsupported_versions_and_modes_are_rejected() {
        let Message::Init { id, secret, name, .. } = init(7) else {
            panic!()
        };
        for (version, mode) in [(0x0100, 0), (0x0201, 0), (VERSION, 1)] {
            let init = Message::Init {
                version,
                id,
                mode,
                secret,
                name,
            };
            assert!(matches!(
                handle(&[init]),
                Err(MessageError::Version { .. } | MessageError::Mode { mode: 1 })
            ));
        }
    }
}
