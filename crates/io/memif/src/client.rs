//! The client's side of the control channel, without IO: what a server may say, when, and what is said next; and where
//! things lie in the memory that the client makes.

use crate::message::{Direction, Message, Name, RingPlace};
use crate::refusal::Refusal;
use crate::region::ring_size;
use crate::{LOG2_RING_MAX, VERSION};

/// Bytes of a page, at which buffers begin.
const PAGE: usize = 4096;
/// Bytes that a client's memory has at most, so that all places fit into 32 bits and servers map it gladly.
const SIZE_MAX: usize = 1 << 30;

/// What a client would like to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Rings to the server, at least 1.
    pub to_server: u16,
    /// Rings to the client, at least 1.
    pub to_client: u16,
    /// Descriptors of each, as a power of two.
    pub log2_len: u8,
    /// Bytes of each buffer.
    pub buffer_size: u32,
}

/// One region: all rings, one behind the other, then the buffers of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    to_server: u16,
    to_client: u16,
    log2_len: u8,
    buffer_size: u32,
}

impl Layout {
    /// As much of a wish as fits into a GiB: rings are left out from the end, but for the first of each direction.
    pub fn new(wish: Wish) -> Layout {
        let mut layout = Layout {
            to_server: wish.to_server.max(1),
            to_client: wish.to_client.max(1),
            log2_len: wish.log2_len.min(LOG2_RING_MAX),
            buffer_size: wish.buffer_size.clamp(64, 65_536).next_multiple_of(64),
        };
        while layout.size() > SIZE_MAX && (layout.to_server > 1 || layout.to_client > 1) {
            layout.to_server = layout.to_server.max(2) - 1;
            layout.to_client = layout.to_client.max(2) - 1;
        }
        while layout.size() > SIZE_MAX {
            layout.log2_len -= 1;
        }
        layout
    }

    /// Bytes of the region.
    pub fn size(&self) -> usize {
        let rings = usize::from(self.to_server) + usize::from(self.to_client);
        self.buffers_begin() + rings * self.buffers_size()
    }

    /// How many rings there are.
    pub fn rings(&self, direction: Direction) -> u16 {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    /// Bytes of each buffer.
    pub fn buffer_size(&self) -> u32 {
        self.buffer_size
    }

    /// Where a ring is.
    pub fn ring(&self, direction: Direction, index: u16) -> RingPlace {
        RingPlace {
            direction,
            index,
            region: 0,
            offset: (self.number(direction, index) * self.ring_size()) as u32,
            log2_len: self.log2_len,
            private_header_size: 0,
        }
    }

    /// Where the first buffer of a ring is.
    pub(crate) fn buffers(&self, direction: Direction, index: u16) -> u32 {
        (self.buffers_begin() + self.number(direction, index) * self.buffers_size()) as u32
    }

    fn number(&self, direction: Direction, index: u16) -> usize {
        usize::from(index)
            + match direction {
                Direction::ToServer => 0,
                Direction::ToClient => usize::from(self.to_server),
            }
    }

    /// Of whole cache lines.
    fn ring_size(&self) -> usize {
        (ring_size(self.log2_len).unwrap_or(0) as usize).next_multiple_of(64)
    }

    fn buffers_begin(&self) -> usize {
        let rings = usize::from(self.to_server) + usize::from(self.to_client);
        (rings * self.ring_size()).next_multiple_of(PAGE)
    }

    fn buffers_size(&self) -> usize {
        (self.buffer_size as usize) << self.log2_len
    }
}

/// Which file goes with a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// None.
    Nothing,
    /// That of the memory.
    Memory,
    /// The eventfd of a ring.
    Bell(Direction, u16),
}

/// What to do upon a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Make memory of this layout, and then say this.
    Begin(Layout, Message),
    /// Say this.
    Send(Message, Attachment),
    /// Packets may flow.
    Connected(Name),
    /// The server goes.
    Gone,
}

#[derive(Clone, Copy)]
enum State {
    /// The server has said nothing yet.
    Waiting,
    /// So many messages were acknowledged.
    Offering(Layout, usize),
    /// Everything is said.
    Asked,
    Connected,
}

/// One connection to a server.
pub struct Session {
    id: u32,
    program: Name,
    interface: Name,
    wish: Wish,
    state: State,
}

impl Session {
    /// To interface `id` of a server that has not spoken yet.
    pub fn new(id: u32, program: &str, interface: &str, wish: Wish) -> Session {
        Session {
            id,
            program: Name::new(program),
            interface: Name::new(interface),
            wish,
            state: State::Waiting,
        }
    }

    /// Whether packets may flow.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// A message came.
    ///
    /// # Errors
    /// [`Refusal`]: to be told to the server; the connection ends.
    pub fn receive(&mut self, message: &Message) -> Result<Step, Refusal> {
        if let Message::Disconnect { .. } = message {
            return Ok(Step::Gone);
        }
        let unexpected = |expected| Refusal::Unexpected {
            message: message.kind(),
            expected,
        };
        match (self.state, *message) {
            (
                State::Waiting,
                Message::Hello {
                    min_version,
                    max_version,
                    max_to_client,
                    max_to_server,
                    max_log2_ring,
                    ..
                },
            ) => {
                if !(min_version..=max_version).contains(&VERSION) {
                    return Err(Refusal::Version { version: max_version });
                }
                let layout = Layout::new(Wish {
                    to_server: self.wish.to_server.min(max_to_server.saturating_add(1)),
                    to_client: self.wish.to_client.min(max_to_client.saturating_add(1)),
                    log2_len: self.wish.log2_len.min(max_log2_ring),
                    ..self.wish
                });
                self.state = State::Offering(layout, 0);
                let init = Message::Init {
                    version: VERSION,
                    id: self.id,
                    mode: 0,
                    secret: [0; 24],
                    name: self.program,
                };
                Ok(Step::Begin(layout, init))
            }
            (State::Waiting, _) => Err(unexpected("HELLO")),
            (State::Offering(layout, done), Message::Ack) => Ok(self.next(layout, done)),
            (State::Offering(..), _) => Err(unexpected("ACK")),
            (State::Asked, Message::Connected { name }) => {
                self.state = State::Connected;
                Ok(Step::Connected(name))
            }
            (State::Asked, _) => Err(unexpected("CONNECTED")),
            (State::Connected, _) => Err(unexpected("DISCONNECT")),
        }
    }

    /// What follows upon `done` messages after INIT.
    fn next(&mut self, layout: Layout, done: usize) -> Step {
        self.state = State::Offering(layout, done + 1);
        let Some(number) = done.checked_sub(1) else {
            let region = Message::AddRegion {
                index: 0,
                size: layout.size() as u64,
            };
            return Step::Send(region, Attachment::Memory);
        };
        let to_server = usize::from(layout.to_server);
        let (direction, index) = match number.checked_sub(to_server) {
            None => (Direction::ToServer, number as u16),
            Some(index) => (Direction::ToClient, index as u16),
        };
        if index < layout.rings(direction) {
            let ring = Message::AddRing(layout.ring(direction, index));
            return Step::Send(ring, Attachment::Bell(direction, index));
        }
        self.state = State::Asked;
        let connect = Message::Connect { name: self.interface };
        Step::Send(connect, Attachment::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{self, Limits};

    const WISH: Wish = Wish {
        to_server: 1,
        to_client: 4,
        log2_len: 10,
        buffer_size: 2048,
    };

    fn hello(to_server: u16, to_client: u16, max_log2_ring: u8) -> Message {
        Message::Hello {
            name: Name::default(),
            min_version: 0x0100,
            max_version: 0x0300,
            max_region: 0,
            max_to_client: to_client,
            max_to_server: to_server,
            max_log2_ring,
        }
    }

    #[test]
    fn a_client_and_a_server_of_ours_understand_each_other() {
        let limits = Limits {
            to_server: 2,
            to_client: 2,
        };
        let mut client = Session::new(7, "a", "b", WISH);
        let mut server = server::Session::<Attachment>::default();
        let mut message = server::Session::<Attachment>::hello("s", limits);
        loop {
            let (said, with) = match client.receive(&message).unwrap() {
                Step::Begin(layout, init) => {
                    assert_eq!(layout.rings(Direction::ToClient), 2);
                    (init, Attachment::Nothing)
                }
                Step::Send(said, with) => (said, with),
                Step::Connected(name) => break assert_eq!(name.to_string(), "there"),
                Step::Gone => panic!(),
            };
            let file = (with != Attachment::Nothing).then_some(with);
            message = match server.receive(&said, file, |_| Ok(limits)).unwrap() {
                server::Step::Reply(reply) => reply,
                server::Step::Connect(offer) => {
                    assert_eq!(offer.regions[0].1, Attachment::Memory);
                    assert_eq!(offer.to_client[1].1, Attachment::Bell(Direction::ToClient, 1));
                    Message::Connected {
                        name: Name::new("there"),
                    }
                }
                server::Step::Gone => panic!(),
            };
        }
        assert!(client.is_connected() && server.is_connected());
    }

    #[test]
    fn parts_of_the_memory_do_not_overlap() {
        for (to_server, to_client, log2_len) in
            [(1, 1, 0), (1, 4, 10), (16, 16, 14), (256, 256, 14), (1, 1, 3)]
        {
            let layout = Layout::new(Wish {
                to_server,
                to_client,
                log2_len,
                buffer_size: 1518,
            });
            let mut parts = Vec::new();
            for direction in [Direction::ToServer, Direction::ToClient] {
                for index in 0..layout.rings(direction) {
                    let ring = layout.ring(direction, index);
                    assert!(ring.offset.is_multiple_of(64));
                    parts.push((ring.offset as usize, ring_size(ring.log2_len).unwrap() as usize));
                    let first = layout.buffers(direction, index) as usize;
                    assert!(first.is_multiple_of(64));
                    parts.push((first, (layout.buffer_size() as usize) << ring.log2_len));
                }
            }
            parts.sort_unstable();
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            assert!(parts.last().is_some_and(|(at, size)| at + size <= layout.size()));
            assert!(layout.size() <= SIZE_MAX);
        }
    }

    #[test]
    fn a_server_that_offers_little_gets_little() {
        let mut client = Session::new(0, "a", "b", WISH);
        let Ok(Step::Begin(layout, _)) = client.receive(&hello(0, 0, 0)) else {
            panic!()
        };
        assert_eq!((layout.to_server, layout.to_client, layout.log2_len), (1, 1, 0));
        let mut client = Session::new(0, "a", "b", WISH);
        let Ok(Step::Begin(layout, _)) = client.receive(&hello(0xffff, 0xffff, 255)) else {
            panic!()
        };
        assert_eq!((layout.to_server, layout.to_client, layout.log2_len), (1, 4, 10));
    }

    #[test]
    fn what_comes_at_the_wrong_time_is_refused() {
        let connected = Message::Connected {
            name: Name::default(),
        };
        let mut client = Session::new(0, "a", "b", WISH);
        assert!(client.receive(&Message::Ack).is_err());
        assert!(client.receive(&connected).is_err());
        client.receive(&hello(0, 0, 4)).unwrap();
        assert!(client.receive(&connected).is_err());
        assert!(client.receive(&hello(0, 0, 4)).is_err());
        for _ in 0..4 {
            assert!(matches!(client.receive(&Message::Ack), Ok(Step::Send(..))));
        }
        assert!(client.receive(&Message::Ack).is_err());
        client.receive(&connected).unwrap();
        assert!(client.receive(&connected).is_err());
        assert_eq!(client.receive(&Message::disconnect(&"bye")), Ok(Step::Gone));
    }

    #[test]
    fn a_server_of_another_version_is_refused() {
        let mut client = Session::new(0, "a", "b", WISH);
        let Message::Hello { name, .. } = hello(0, 0, 0) else {
            panic!()
        };
        let newer = Message::Hello {
            name,
            min_version: 0x0300,
            max_version: 0x0300,
            max_region: 0,
            max_to_client: 0,
            max_to_server: 0,
            max_log2_ring: 10,
        };
        assert_eq!(client.receive(&newer), Err(Refusal::Version { version: 0x0300 }));
    }
}
