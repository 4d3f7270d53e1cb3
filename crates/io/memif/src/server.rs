//! The server's side of the control channel, without IO: what a client may say, when, and what is answered.

use crate::message::{Direction, Message, Name, RingPlace};
use crate::refusal::Refusal;
use crate::region::ring_size;
use crate::{LOG2_RING_MAX, REGIONS_MAX, REGIONS_SIZE_MAX, VERSION};

/// Rings that a client may have in each direction, at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Of those to the server.
    pub to_server: u16,
    /// Of those to the client.
    pub to_client: u16,
}

/// What a client offers. `F` is a file.
#[derive(PartialEq, Eq, Debug)]
pub struct Offer<F> {
    /// Which program it is.
    pub program: Name,
    /// What it calls its interface.
    pub interface: Name,
    /// Bytes and file of each region.
    pub regions: Vec<(u64, F)>,
    /// Rings to the server, by index, each with its eventfd. They lie within the regions, by their sizes.
    pub to_server: Vec<(RingPlace, F)>,
    /// Rings to the client.
    pub to_client: Vec<(RingPlace, F)>,
}

/// What to do upon a message.
#[derive(PartialEq, Eq, Debug)]
pub enum Step<F> {
    /// Answer.
    Reply(Message),
    /// Map what is offered, and answer with [`Message::Connected`].
    Connect(Box<Offer<F>>),
    /// The client goes.
    Gone,
}

enum State<F> {
    /// Nothing was said yet.
    Greeted,
    /// It has an interface, and makes its offer.
    Offering(Limits, Box<Offer<F>>),
    /// It may only go.
    Connected,
}

/// One client.
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
    /// The first word to a client: what is possible at this socket.
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

    /// Whether the client has said all that it must.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// A message came, perhaps with a file. `interface` says whether the client may have the interface of a number, and is
    /// asked once.
    ///
    /// # Errors
    /// [`Refusal`]: to be told to the client, whose connection ends.
    pub fn receive(
        &mut self,
        message: &Message,
        file: Option<F>,
        interface: impl FnOnce(u32) -> Result<Limits, Refusal>,
    ) -> Result<Step<F>, Refusal> {
        if let Message::Disconnect { .. } = message {
            return Ok(Step::Gone);
        }
        let unexpected = |expected| Refusal::Unexpected {
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
                    return Err(Refusal::Version { version });
                }
                if mode != 0 {
                    return Err(Refusal::Mode { mode });
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
                        return Ok(Step::Gone);
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
    fn add_region(&mut self, index: u16, size: u64, file: Option<F>) -> Result<(), Refusal> {
        let expected = self.regions.len();
        if expected == REGIONS_MAX {
            return Err(Refusal::Regions);
        }
        if usize::from(index) != expected {
            return Err(Refusal::RegionIndex { index, expected });
        }
        let before: u64 = self.regions.iter().map(|(size, _)| size).sum();
        if size == 0 || size > REGIONS_SIZE_MAX - before {
            return Err(Refusal::RegionSize { index, size });
        }
        let file = file.ok_or(Refusal::NoFile {
            message: "ADD_REGION",
            expected: "a memfd",
        })?;
        self.regions.push((size, file));
        Ok(())
    }

    fn add_ring(&mut self, ring: RingPlace, file: Option<F>, limits: Limits) -> Result<(), Refusal> {
        let RingPlace {
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
            return Err(Refusal::RingIndex {
                direction,
                index,
                rings: max,
            });
        }
        let at = match rings.binary_search_by_key(&index, |(ring, _)| ring.index) {
            Ok(_) => return Err(Refusal::RingTwice { direction, index }),
            Err(at) => at,
        };
        let size = ring_size(log2_len).ok_or(Refusal::RingLength {
            direction,
            index,
            log2_len,
        })?;
        let room = self.regions.get(usize::from(region)).map_or(0, |(size, _)| *size);
        if u64::from(offset) + u64::from(size) > room || !offset.is_multiple_of(16) {
            return Err(Refusal::RingOutside {
                direction,
                index,
                region,
                offset,
            });
        }
        if private_header_size != 0 {
            return Err(Refusal::PrivateHeader {
                size: private_header_size,
            });
        }
        let file = file.ok_or(Refusal::NoFile {
            message: "ADD_RING",
            expected: "an eventfd",
        })?;
        rings.insert(at, (ring, file));
        Ok(())
    }

    fn check_rings(&self) -> Result<(), Refusal> {
        for (direction, rings) in [
            (Direction::ToServer, &self.to_server),
            (Direction::ToClient, &self.to_client),
        ] {
            // They are in order, and none is there twice.
            let is_whole = rings
                .last()
                .is_some_and(|(ring, _)| usize::from(ring.index) + 1 == rings.len());
            if !is_whole {
                return Err(Refusal::RingsMissing { direction });
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

    fn ring(direction: Direction, index: u16) -> RingPlace {
        RingPlace {
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

    /// Tells all of it with files; the last answer.
    fn tell(messages: &[Message]) -> Result<Step<u8>, Refusal> {
        let mut session = Session::default();
        let mut last = Ok(Step::Gone);
        for message in messages {
            last = session.receive(message, Some(1), |id| match id {
                7 => Ok(LIMITS),
                id => Err(Refusal::NoInterface { id }),
            });
            if last.is_err() {
                break;
            }
        }
        last
    }

    #[test]
    fn a_client_that_says_everything_in_order_is_connected() {
        let both =
            [Direction::ToServer, Direction::ToClient].map(|direction| Message::AddRing(ring(direction, 0)));
        let last = tell(&[init(7), region(0, 4096), both[0], both[1], connect()]);
        let Ok(Step::Connect(offer)) = last else {
            panic!("{last:?}")
        };
        assert_eq!(offer.regions, [(4096, 1)]);
        assert_eq!((offer.to_server.len(), offer.to_client.len()), (1, 1));
        assert_eq!(offer.interface.to_string(), "m0");
    }

    #[test]
    fn what_comes_at_the_wrong_time_is_refused() {
        for messages in [
            vec![Message::Ack],
            vec![region(0, 4096)],
            vec![connect()],
            vec![init(7), init(7)],
            vec![init(7), Message::Ack],
            vec![init(7), Session::<u8>::hello("x", LIMITS)],
        ] {
            assert!(
                matches!(tell(&messages), Err(Refusal::Unexpected { .. })),
                "{messages:?}"
            );
        }
        assert_eq!(tell(&[init(8)]), Err(Refusal::NoInterface { id: 8 }));
        assert_eq!(
            tell(&[init(7), connect()]),
            Err(Refusal::RingsMissing {
                direction: Direction::ToServer
            })
        );
    }

    #[test]
    fn regions_come_in_order_and_have_an_end() {
        let wrong = |more: &[Message]| tell(&[&[init(7)], more].concat()).unwrap_err();
        assert_eq!(
            wrong(&[region(1, 4096)]),
            Refusal::RegionIndex {
                index: 1,
                expected: 0
            }
        );
        let many: Vec<Message> = (0..=REGIONS_MAX as u16).map(|index| region(index, 1)).collect();
        assert_eq!(wrong(&many), Refusal::Regions);
        for size in [0, REGIONS_SIZE_MAX + 1, u64::MAX] {
            assert_eq!(wrong(&[region(0, size)]), Refusal::RegionSize { index: 0, size });
        }
        let size = REGIONS_SIZE_MAX;
        assert_eq!(
            wrong(&[region(0, size), region(1, 1)]),
            Refusal::RegionSize { index: 1, size: 1 }
        );
    }

    #[test]
    fn rings_lie_in_regions_that_are_there() {
        let wrong = |ring: RingPlace| tell(&[init(7), region(0, 4096), Message::AddRing(ring)]).unwrap_err();
        let right = ring(Direction::ToServer, 0);
        for (offset, region, log2_len) in [
            (4096 - 16, 0, 4),
            (8, 0, 4),
            (u32::MAX - 15, 0, 4),
            (0, 1, 4),
            (0, 0xffff, 4),
            (0, 0, 14),
        ] {
            let place = RingPlace {
                offset,
                region,
                log2_len,
                ..right
            };
            assert!(matches!(wrong(place), Refusal::RingOutside { .. }), "{place:?}");
        }
        for log2_len in [15, 16, 31, 64, 255] {
            assert!(matches!(
                wrong(RingPlace { log2_len, ..right }),
                Refusal::RingLength { .. }
            ));
        }
        assert!(matches!(
            wrong(RingPlace { index: 2, ..right }),
            Refusal::RingIndex { rings: 2, .. }
        ));
        assert!(matches!(
            wrong(RingPlace {
                private_header_size: 8,
                ..right
            }),
            Refusal::PrivateHeader { size: 8 }
        ));
        let twice = tell(&[
            init(7),
            region(0, 4096),
            Message::AddRing(right),
            Message::AddRing(right),
        ]);
        assert!(matches!(twice, Err(Refusal::RingTwice { .. })));
        let gap = [ring(Direction::ToServer, 1), ring(Direction::ToClient, 0)].map(Message::AddRing);
        let gap = tell(&[init(7), region(0, 4096), gap[0], gap[1], connect()]);
        assert!(matches!(gap, Err(Refusal::RingsMissing { .. })));
    }

    #[test]
    fn memory_and_rings_need_their_files() {
        let mut session = Session::<u8>::default();
        session.receive(&init(7), None, |_| Ok(LIMITS)).unwrap();
        let never = |_| Err(Refusal::TooSlow);
        assert!(matches!(
            session.receive(&region(0, 4096), None, never),
            Err(Refusal::NoFile { .. })
        ));
        session.receive(&region(0, 4096), Some(1), never).unwrap();
        let ring = Message::AddRing(ring(Direction::ToClient, 0));
        assert!(matches!(
            session.receive(&ring, None, never),
            Err(Refusal::NoFile { .. })
        ));
    }

    #[test]
    fn versions_and_modes_that_we_do_not_speak_are_refused() {
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
                tell(&[init]),
                Err(Refusal::Version { .. } | Refusal::Mode { mode: 1 })
            ));
        }
    }
}
