//! The client's side of the control channel, without IO, and the layout of the memory that the client creates.
//!
//! ```text
//!          HELLO             ACK            ACK of the last ring            CONNECTED
//! Waiting -------> Offering -----> ... Offering ------------------> ConnectSent -----> Connected
//! ```
//! `DISCONNECT` ends the session in every state; any other message is a [`MessageError`].

use crate::direction::Direction;
use crate::error::MessageError;
use crate::message::{AddRing, Message, Name};
use crate::region::ring_size;
use crate::{LOG2_RING_MAX, VERSION};

/// Size of a page in bytes. The first buffer begins at a page.
const PAGE: usize = 4096;
/// Largest region of a client, in bytes: servers accept this size ([`crate::REGIONS_SIZE_MAX`]), and offsets fit into
/// 32 bits.
const SIZE_MAX: usize = 1 << 30;

/// The rings and buffers that a client is configured with. The server's limits may reduce them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConfig {
    /// Rings to the server, at least 1.
    pub to_server: u16,
    /// Rings to the client, at least 1.
    pub to_client: u16,
    /// Binary logarithm of the number of descriptors of each ring.
    pub log2_len: u8,
    /// Size of each buffer, in bytes.
    pub buffer_size: u32,
}

/// The layout of the client's only region.
///
/// ```text
/// +-----------+-----+-----------+---------+--------------------+-----+--------------------+
/// | ring S2M0 | ... | ring M2Sn | padding | buffers of S2M0    | ... | buffers of M2Sn    |
/// +-----------+-----+-----------+---------+--------------------+-----+--------------------+
/// 0                                       page-aligned
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    to_server: u16,
    to_client: u16,
    log2_len: u8,
    buffer_size: u32,
}

impl Layout {
    /// Returns the layout for a configuration. If the region would exceed 1 GiB, the layout has fewer rings, down to
    /// one in each direction, and then shorter ones.
    pub fn new(config: ClientConfig) -> Layout {
        let mut layout = Layout {
            to_server: config.to_server.max(1),
            to_client: config.to_client.max(1),
            log2_len: config.log2_len.min(LOG2_RING_MAX),
            buffer_size: config.buffer_size.clamp(64, 65_536).next_multiple_of(64),
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

    /// Returns the size of the region, in bytes.
    pub fn size(&self) -> usize {
        let rings = usize::from(self.to_server) + usize::from(self.to_client);
        self.buffers_begin() + rings * self.buffers_size()
    }

    /// Returns the number of rings of a direction.
    pub fn rings(&self, direction: Direction) -> u16 {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    /// Returns the size of each buffer, in bytes.
    pub fn buffer_size(&self) -> u32 {
        self.buffer_size
    }

    /// Returns the location of a ring.
    pub fn ring(&self, direction: Direction, index: u16) -> AddRing {
        AddRing {
            direction,
            index,
            region: 0,
            offset: (self.number(direction, index) * self.ring_size()) as u32,
            log2_len: self.log2_len,
            private_header_size: 0,
        }
    }

    /// Returns the offset of the first buffer of a ring, in bytes.
    pub(crate) fn first_buffer(&self, direction: Direction, index: u16) -> u32 {
        (self.buffers_begin() + self.number(direction, index) * self.buffers_size()) as u32
    }

    fn number(&self, direction: Direction, index: u16) -> usize {
        usize::from(index)
            + match direction {
                Direction::ToServer => 0,
                Direction::ToClient => usize::from(self.to_server),
            }
    }

    /// Returns the size of a ring in bytes, rounded up to cache lines.
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

/// The file descriptor that accompanies a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attachment {
    /// No file descriptor.
    Nothing,
    /// The memory region.
    Memory,
    /// The eventfd that interrupts the receiver of a ring.
    Interrupt(Direction, u16),
}

/// The action that follows a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Create memory with this layout, then send the message.
    Begin(Layout, Message),
    /// Send this message.
    Send(Message, Attachment),
    /// Packets may flow. The name is the name of the server's interface.
    Connected(Name),
    /// The server closes the connection.
    Closed,
}

#[derive(Clone, Copy)]
enum State {
    /// The server has not sent HELLO.
    Waiting,
    /// The client describes its region and rings. The number is that of the acknowledged messages, INIT included.
    Offering(Layout, usize),
    /// The client has sent CONNECT.
    ConnectSent,
    /// Packets may flow.
    Connected,
}

/// The control channel to one server.
pub struct Session {
    id: u32,
    program: Name,
    interface: Name,
    config: ClientConfig,
    state: State,
}

impl Session {
    /// Returns a session for interface `id` of a server that has not sent HELLO.
    pub fn new(id: u32, program: &str, interface: &str, config: ClientConfig) -> Session {
        Session {
            id,
            program: Name::new(program),
            interface: Name::new(interface),
            config,
            state: State::Waiting,
        }
    }

    /// Returns true if packets may flow.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// Handles a message.
    ///
    /// # Errors
    /// [`MessageError`]: the caller sends it to the server in a `DISCONNECT`, and closes the connection.
    pub fn receive(&mut self, message: &Message) -> Result<Step, MessageError> {
        if let Message::Disconnect { .. } = message {
            return Ok(Step::Closed);
        }
        let unexpected = |expected| MessageError::Unexpected {
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
                    return Err(MessageError::Version { version: max_version });
                }
                let layout = Layout::new(ClientConfig {
                    to_server: self.config.to_server.min(max_to_server.saturating_add(1)),
                    to_client: self.config.to_client.min(max_to_client.saturating_add(1)),
                    log2_len: self.config.log2_len.min(max_log2_ring),
                    ..self.config
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
            (State::ConnectSent, Message::Connected { name }) => {
                self.state = State::Connected;
                Ok(Step::Connected(name))
            }
            (State::ConnectSent, _) => Err(unexpected("CONNECTED")),
            (State::Connected, _) => Err(unexpected("DISCONNECT")),
        }
    }

    /// Handles an ACK after `done` earlier ones, and returns the next message: the region, a ring, or CONNECT.
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
            return Step::Send(ring, Attachment::Interrupt(direction, index));
        }
        self.state = State::ConnectSent;
        let connect = Message::Connect { name: self.interface };
        Step::Send(connect, Attachment::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{self, Limits};

    const CONFIG: ClientConfig = ClientConfig {
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
    fn our_client_and_our_server_complete_the_handshake() {
        let limits = Limits {
            to_server: 2,
            to_client: 2,
        };
        let mut client = Session::new(7, "a", "b", CONFIG);
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
                Step::Closed => panic!(),
            };
            let file = (with != Attachment::Nothing).then_some(with);
            message = match server.receive(&said, file, |_| Ok(limits)).unwrap() {
                server::Step::Reply(reply) => reply,
                server::Step::Connect(offer) => {
                    assert_eq!(offer.regions[0].1, Attachment::Memory);
                    assert_eq!(
                        offer.to_client[1].1,
                        Attachment::Interrupt(Direction::ToClient, 1)
                    );
                    Message::Connected {
                        name: Name::new("there"),
                    }
                }
                server::Step::Closed => panic!(),
            };
        }
        assert!(client.is_connected() && server.is_connected());
    }

    #[test]
    fn rings_and_buffers_do_not_overlap() {
        for (to_server, to_client, log2_len) in
            [(1, 1, 0), (1, 4, 10), (16, 16, 14), (256, 256, 14), (1, 1, 3)]
        {
            let layout = Layout::new(ClientConfig {
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
                    let first = layout.first_buffer(direction, index) as usize;
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
    fn the_limits_of_the_server_reduce_rings() {
        let mut client = Session::new(0, "a", "b", CONFIG);
        let Ok(Step::Begin(layout, _)) = client.receive(&hello(0, 0, 0)) else {
            panic!()
        };
        assert_eq!((layout.to_server, layout.to_client, layout.log2_len), (1, 1, 0));
        let mut client = Session::new(0, "a", "b", CONFIG);
        let Ok(Step::Begin(layout, _)) = client.receive(&hello(0xffff, 0xffff, 255)) else {
            panic!()
        };
        assert_eq!((layout.to_server, layout.to_client, layout.log2_len), (1, 4, 10));
    }

    #[test]
    fn messages_in_the_wrong_state_are_rejected() {
        let connected = Message::Connected {
            name: Name::default(),
        };
        let mut client = Session::new(0, "a", "b", CONFIG);
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
        assert_eq!(client.receive(&Message::disconnect(&"bye")), Ok(Step::Closed));
    }

    #[test]
    fn a_server_of_another_version_is_rejected() {
        let mut client = Session::new(0, "a", "b", CONFIG);
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
        assert_eq!(
            client.receive(&newer),
            Err(MessageError::Version { version: 0x0300 })
        );
    }
}
