//! The connection of a vhost-user driver: its messages, and the reason of its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_vhost::memory::{Memory, MemoryRegion, UnsealedPolicy};
use millrace_vhost::session::{Device, RingConfig, Session};
use millrace_vhost::{Connection, ConnectionError, MessageError};

use super::interface::Interface;

/// Maximum number of messages that are handled before other events.
const MESSAGES_MAX: usize = 64;
/// Time for which a driver may keep other drivers waiting without starting its rings.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a driver may keep other drivers waiting before its first message. The queue of the socket holds
/// seventeen drivers, so silent ones delay an honest one by four seconds at most.
const GREETING_TIMEOUT: Duration = Duration::from_millis(200);

/// The reason why a connection ends.
pub(super) enum EndReason {
    /// The driver has closed it.
    PeerClosed,
    /// The switch closes it, with this reason.
    Rejected(String),
}

impl From<MessageError> for EndReason {
    fn from(error: MessageError) -> EndReason {
        EndReason::Rejected(error.to_string())
    }
}

impl From<ConnectionError> for EndReason {
    fn from(error: ConnectionError) -> EndReason {
        match error {
            ConnectionError::Closed => EndReason::PeerClosed,
            error => EndReason::Rejected(error.to_string()),
        }
    }
}

/// The driver's memory, and the interface that gets its rings.
struct Shared<'a> {
    interface: &'a Interface,
    unsealed: UnsealedPolicy,
    memory: Option<Arc<Memory>>,
}

impl Device for Shared<'_> {
    type Fd = OwnedFd;

    fn share(&mut self, memory: Vec<(MemoryRegion, OwnedFd)>) -> Result<(), MessageError> {
        // The old memory is unmapped first, as there may be no room for both.
        self.memory = None;
        self.memory = Some(Arc::new(Memory::open(memory, self.unsealed)?));
        Ok(())
    }

    fn start(&mut self, ring: u16, config: &RingConfig) -> Result<(), MessageError> {
        match &self.memory {
            Some(memory) => self.interface.start(ring, config, memory),
            None => Ok(()),
        }
    }

    fn stop(&mut self, ring: u16) -> Option<u32> {
        self.interface.stop(ring)
    }

    fn call(&mut self, ring: u16, fd: Option<OwnedFd>) {
        self.interface.set_call(ring, fd);
    }
}

/// A connection. Dropping it removes all rings and unmaps the memory.
pub(super) struct Peer<'a> {
    connection: Connection,
    session: Session,
    shared: Shared<'a>,
    since: Instant,
    /// True once the driver has sent a complete message.
    has_spoken: bool,
    /// True if the link has been up during this connection.
    was_up: bool,
}

impl<'a> Peer<'a> {
    pub(super) fn new(socket: OwnedFd, interface: &'a Interface, unsealed: UnsealedPolicy) -> Peer<'a> {
        Peer {
            connection: Connection::new(socket),
            session: Session::new(interface.pairs(), interface.offered()),
            shared: Shared {
                interface,
                unsealed,
                memory: None,
            },
            since: Instant::now(),
            has_spoken: false,
            was_up: false,
        }
    }

    /// Returns true if the connection must be checked regularly, even without an event.
    pub(super) fn needs_checks(&self) -> bool {
        self.shared
            .memory
            .as_ref()
            .is_some_and(|memory| memory.can_shrink())
    }

    /// Returns the time from which another driver may replace this one; `None` while packets flow.
    pub(super) fn replaceable_at(&self) -> Option<Instant> {
        let timeout = match self.has_spoken {
            true => START_TIMEOUT,
            false => GREETING_TIMEOUT,
        };
        (!self.session.is_up()).then(|| self.since + timeout)
    }

    /// Returns an error if the connection must be closed.
    pub(super) fn check(&self) -> Result<(), EndReason> {
        if let Some(violation) = self.shared.interface.violation() {
            return Err(EndReason::Rejected(violation.to_string()));
        }
        if let Some(memory) = &self.shared.memory {
            memory.check()?;
        }
        Ok(())
    }

    /// Handles the driver's messages.
    pub(super) fn receive(&mut self) -> Result<(), EndReason> {
        for _ in 0..MESSAGES_MAX {
            let Some(received) = self.connection.receive()? else {
                return Ok(());
            };
            self.has_spoken = true;
            let (message, fds) = (received.message, received.fds);
            tracing::trace!(device = %self.shared.interface.name, ?message, "vhost: message from the driver");
            let reply = self
                .session
                .receive(message, received.needs_reply, fds, &mut self.shared)?;
            if let Some(reply) = reply {
                self.connection.send(&reply)?;
            }
            self.update_link();
        }
        Ok(())
    }

    /// Sets the link up if the driver's rings run, and down otherwise.
    fn update_link(&mut self) {
        let (interface, is_up) = (self.shared.interface, self.session.is_up());
        if !interface.set_up(is_up) {
            return;
        }
        // A driver may stop and start its queues often: only the first start is logged at the higher level.
        if is_up && !self.was_up {
            let features = format_args!("{:#x}", self.session.features().bits());
            tracing::info!(device = %interface.name, %features, "vhost: peer connected");
        } else {
            tracing::debug!(device = %interface.name, is_up, "vhost: the driver started or stopped its queues");
        }
        self.was_up |= is_up;
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        self.session.end(&mut self.shared);
        let interface = self.shared.interface;
        interface.reset();
        if self.was_up {
            tracing::info!(device = %interface.name, "vhost: peer disconnected");
        }
    }
}

impl AsFd for Peer<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
