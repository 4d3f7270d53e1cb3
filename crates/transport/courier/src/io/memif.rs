//! A memif port of the switch as the link: frames in rings of memory that this process shares with the
//! switch. It needs a socket file, but neither root nor huge pages.
//!
//! ```text
//!  Waiting ── the socket takes a connection ──> Handshake ── CONNECTED ──> Up
//!     ^ 200 ms                                      │ refused, 5 s            │ the switch ends, or violates the protocol
//!     └─────────────────────────────────────────────┴─────────────────────────┘
//! ```
//!
//! A transfer thus survives a restart of the switch. The receiving side polls while frames arrive, and asks for interrupts when it
//! finds none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use millrace_endpoint::FrameWriter;
use millrace_memif::client::{Attachment, ClientConfig, Session, Step};
use millrace_memif::ring::{Rings, Sent, Sink};
use millrace_memif::{Connection, ConnectionError, Direction, Message};
use millrace_types::split_mix;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::FrameLink;

const PROGRAM: &str = "millrace";
/// Binary logarithm of the descriptors of a ring: 4,096 frames are 50 ms at 1 Gbit/s.
const LOG2_RING: u8 = 12;
/// Bytes of a buffer in addition to the MTU: Ethernet header and two VLAN tags.
const FRAME_OVERHEAD: u32 = 22;
const BUFFER_SIZE_MIN: u32 = 2_048;
/// The maximum number of frames that are copied out of a ring at once.
const BURST: usize = 64;
/// The time between two attempts to connect, and between two checks of the connection.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two checks of the connection during the handshake.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(2);
/// The time within which the switch must complete the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The port to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemifConfig {
    /// The socket, at which the switch listens.
    pub path: PathBuf,
    /// The number of the interface at the socket.
    pub id: u32,
    /// Rings in each direction, at least one.
    pub queues: u16,
    /// The MTU in bytes.
    pub mtu: u16,
}

/// A connection during its handshake.
struct Handshake {
    connection: Connection,
    session: Session,
    shared: Option<Shared>,
    deadline: Instant,
}

/// Memory and eventfds, until the switch is connected.
struct Shared {
    rings: Rings,
    memory: OwnedFd,
    /// The eventfds that notify the switch, one for each ring to it.
    notifiers: Vec<EventFd>,
}

/// The rings of a connection.
struct Up {
    connection: Connection,
    rings: Rings,
    notifiers: Vec<EventFd>,
    /// The ring that is polled next.
    next_ring: usize,
}

enum State {
    Waiting,
    Handshake(Box<Handshake>),
    Up(Box<Up>),
}

/// The driver of a memif connection, which connects again when the switch restarts.
pub struct MemifLink {
    config: MemifConfig,
    state: State,
    /// The time of the next attempt to connect, or of the next check of the connection.
    check_at: Instant,
    epoll: Epoll,
    /// The switch writes here when a frame arrives and this side sleeps.
    interrupt: EventFd,
    /// True if this side has requested interrupts.
    sleeps: bool,
    frames: FrameBuffer,
    /// Frames that were lost: the ring to the switch was full, the frame exceeded a buffer, the switch violated the
    /// protocol, or no switch was connected.
    lost: u64,
}

/// Frames that were copied out of a ring.
struct FrameBuffer {
    bytes: Vec<u8>,
    slot: usize,
    sizes: Vec<usize>,
    /// The number of frames that were taken; the last of them is the current one.
    taken: usize,
}

impl Sink for FrameBuffer {
    fn allocate(&mut self, size: usize) -> Option<&mut [u8]> {
        let at = self.sizes.len() * self.slot;
        let bytes = self.bytes.get_mut(at..at + size).filter(|_| size <= self.slot)?;
        self.sizes.push(size);
        Some(bytes)
    }
}

impl MemifLink {
    /// Returns a link without a connection. It connects when it is polled.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub fn new(config: MemifConfig) -> io::Result<MemifLink> {
        let interrupt = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&interrupt, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        let slot = buffer_size(&config) as usize;
        Ok(MemifLink {
            config,
            state: State::Waiting,
            check_at: Instant::now(),
            epoll,
            interrupt,
            sleeps: false,
            frames: FrameBuffer {
                bytes: vec![0; BURST * slot],
                slot,
                sizes: Vec::with_capacity(BURST),
                taken: 0,
            },
            lost: 0,
        })
    }

    /// Returns the number of frames that could not be given to the switch.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Advances the connection: connects, continues the handshake, or checks that the switch is still there.
    fn drive(&mut self, now: Instant) -> io::Result<()> {
        self.check_at = now + CHECK_INTERVAL;
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Waiting => match self.connect(now) {
                Ok(handshake) => {
                    self.state = State::Handshake(Box::new(handshake));
                    self.check_at = now;
                }
                Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            },
            State::Handshake(mut handshake) => match self.handshake(&mut handshake) {
                Ok(true) => {
                    tracing::debug!(socket = %self.config.path.display(), "memif: connected");
                    self.state = up(*handshake);
                }
                Ok(false) if now < handshake.deadline => {
                    self.state = State::Handshake(handshake);
                    self.check_at = now + HANDSHAKE_INTERVAL;
                }
                Ok(false) => self.close(&handshake.connection, "the handshake took too long"),
                Err(error) => self.close(&handshake.connection, &error.to_string()),
            },
            State::Up(up) => match up.connection.receive() {
                Ok(None) => self.state = State::Up(up),
                Ok(Some((Message::Disconnect { reason, .. }, _))) => {
                    self.close(&up.connection, &reason.to_string());
                }
                Ok(Some(_)) => self.close(&up.connection, "an unexpected message"),
                Err(error) => self.close(&up.connection, &error.to_string()),
            },
        }
        if self.is_up() {
            // Wakes the caller, so that it polls the rings. The new connection's rings have no request for
            // interrupts yet, and the switch of the previous connection may have consumed an interrupt of
            // this one.
            let _full = self.interrupt.write(1);
        }
        Ok(())
    }

    /// Drops a connection. The next attempt to connect follows later.
    fn close(&mut self, connection: &Connection, reason: &str) {
        tracing::warn!(socket = %self.config.path.display(), reason, "memif: disconnected");
        let _closed = connection.send(&Message::disconnect(&reason), None);
        let _unknown = self.epoll.delete(connection);
        self.state = State::Waiting;
        self.sleeps = false;
    }

    fn connect(&self, now: Instant) -> nix::Result<Handshake> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let file = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        let address = UnixAddr::new(&self.config.path)?;
        connect(std::os::fd::AsRawFd::as_raw_fd(&file), &address)?;
        let connection = Connection::new(file);
        self.epoll
            .add(&connection, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        let rings = self.config.queues.max(1);
        let client = ClientConfig {
            to_server: rings,
            to_client: rings,
            log2_len: LOG2_RING,
            buffer_size: buffer_size(&self.config),
        };
        Ok(Handshake {
            connection,
            session: Session::new(self.config.id, PROGRAM, PROGRAM, client),
            shared: None,
            deadline: now + HANDSHAKE_TIMEOUT,
        })
    }

    /// Handles the messages that arrived; returns true when the switch is connected.
    fn handshake(&self, handshake: &mut Handshake) -> Result<bool, HandshakeError> {
        while let Some((message, _file)) = handshake.connection.receive()? {
            match handshake
                .session
                .receive(&message)
                .map_err(ConnectionError::InvalidMessage)?
            {
                Step::Begin(layout, message) => {
                    let (rings, memory) = Rings::create(&layout).map_err(io::Error::from)?;
                    let notifier = |_| EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
                    let notifiers = (0..layout.rings(Direction::ToServer)).map(notifier);
                    handshake.shared = Some(Shared {
                        rings,
                        memory,
                        notifiers: notifiers.collect::<nix::Result<_>>().map_err(io::Error::from)?,
                    });
                    handshake.connection.send(&message, None)?;
                }
                Step::Send(message, with) => {
                    let file = handshake.shared.as_ref().and_then(|shared| match with {
                        Attachment::Nothing => None,
                        Attachment::Memory => Some(shared.memory.as_fd()),
                        Attachment::Interrupt(Direction::ToServer, ring) => {
                            shared.notifiers.get(usize::from(ring)).map(AsFd::as_fd)
                        }
                        Attachment::Interrupt(Direction::ToClient, _) => Some(self.interrupt.as_fd()),
                    });
                    handshake.connection.send(&message, file)?;
                }
                Step::Connected(_) => return Ok(true),
                Step::Closed => return Err(ConnectionError::Closed.into()),
            }
        }
        Ok(false)
    }

    /// Copies frames out of the rings; asks for interrupts if there is none.
    fn fill(&mut self) {
        self.frames.sizes.clear();
        self.frames.taken = 0;
        let State::Up(up) = &mut self.state else { return };
        match up.fill(&mut self.frames, &mut self.sleeps, &self.interrupt) {
            Ok(()) => {}
            Err(violation) => self.fail(&violation),
        }
    }

    fn fail(&mut self, violation: &millrace_memif::ProtocolViolation) {
        if let State::Up(up) = std::mem::replace(&mut self.state, State::Waiting) {
            self.close(&up.connection, &violation.to_string());
        }
    }
}

/// Returns the state after a handshake: all buffers are offered to the switch.
fn up(handshake: Handshake) -> State {
    let Some(mut shared) = handshake.shared else {
        return State::Waiting;
    };
    for receiver in &mut shared.rings.receivers {
        receiver.begin();
    }
    State::Up(Box::new(Up {
        connection: handshake.connection,
        rings: shared.rings,
        notifiers: shared.notifiers,
        next_ring: 0,
    }))
}

/// Returns the ring for the frames of a flow. The head of a datagram ends with destination address, ports, size and checksum.
fn ring_of(head: &[u8], rings: usize) -> usize {
    let flow = head
        .get(head.len().saturating_sub(12)..)
        .and_then(<[u8]>::first_chunk);
    match flow {
        Some(flow) if rings > 1 => (split_mix::mix(u64::from_be_bytes(*flow)) % rings as u64) as usize,
        _ => 0,
    }
}

/// A handshake that failed.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Up {
    fn fill(
        &mut self,
        frames: &mut FrameBuffer,
        sleeps: &mut bool,
        interrupt: &EventFd,
    ) -> Result<(), millrace_memif::ProtocolViolation> {
        let rings = self.rings.receivers.len();
        for _ in 0..rings {
            let ring = self.next_ring % rings;
            self.next_ring = ring + 1;
            let receiver = &mut self.rings.receivers[ring];
            if receiver.ready()? > 0 {
                receiver.receive(BURST, frames)?;
            }
            if !frames.sizes.is_empty() {
                break;
            }
        }
        let is_idle = frames.sizes.is_empty();
        if *sleeps && is_idle {
            // Clears an interrupt of a frame that was taken already.
            let _empty = interrupt.read();
        }
        if is_idle && !*sleeps {
            *sleeps = true;
            let mut is_ready = false;
            for receiver in &mut self.rings.receivers {
                is_ready |= receiver.request_interrupt()?;
            }
            if is_ready {
                return self.fill(frames, sleeps, interrupt);
            }
        }
        if !is_idle && *sleeps {
            *sleeps = false;
            for receiver in &mut self.rings.receivers {
                receiver.mask_interrupt();
            }
            let _empty = interrupt.read();
        }
        Ok(())
    }

    /// Makes written frames visible, and wakes the switch if it sleeps.
    fn publish(&mut self) {
        for (sender, notifier) in self.rings.senders.iter_mut().zip(&self.notifiers) {
            if sender.publish() {
                let _full = notifier.write(1);
            }
        }
    }
}

fn buffer_size(config: &MemifConfig) -> u32 {
    (u32::from(config.mtu) + FRAME_OVERHEAD).max(BUFFER_SIZE_MIN)
}

impl FrameWriter for MemifLink {
    fn write_frame<'a>(&mut self, size: usize, slices: impl Iterator<Item = &'a [u8]>) -> bool {
        let State::Up(up) = &mut self.state else {
            self.lost += 1;
            return false;
        };
        let mut slices = slices.peekable();
        let head = slices.peek().copied().unwrap_or_default();
        let ring = ring_of(head, up.rings.senders.len());
        let sender = &mut up.rings.senders[ring];
        let sent = sender.ready().and_then(|_| sender.send_slices(size, slices));
        match sent {
            Ok(Sent::Yes) => return true,
            Ok(Sent::Full) => up.publish(),
            Ok(Sent::TooLong) => {}
            Err(violation) => self.fail(&violation),
        }
        self.lost += 1;
        false
    }
}

impl FrameLink for MemifLink {
    fn advance(&mut self) -> io::Result<bool> {
        if self.frames.taken >= self.frames.sizes.len() {
            self.fill();
            if self.frames.sizes.is_empty() {
                return Ok(false);
            }
        }
        self.frames.taken += 1;
        Ok(true)
    }

    fn frame(&mut self) -> &mut [u8] {
        let frames = &mut self.frames;
        let index = frames.taken.saturating_sub(1);
        let size = frames.sizes.get(index).copied().unwrap_or(0);
        &mut frames.bytes[index * frames.slot..][..size]
    }

    fn flush(&mut self) -> io::Result<()> {
        if let State::Up(up) = &mut self.state {
            up.publish();
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn next_timeout(&self) -> Option<Instant> {
        Some(self.check_at)
    }

    fn on_timeout(&mut self, now: Instant) -> io::Result<()> {
        if now < self.check_at {
            return Ok(());
        }
        self.drive(now)
    }
}
