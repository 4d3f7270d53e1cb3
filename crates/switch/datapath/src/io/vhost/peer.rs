//! A driver that is connected.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_vhost::memory::{Memory, MemoryRegion, UnsealedPolicy};
use millrace_vhost::session::{Device, RingConfig, Session};
use millrace_vhost::{Connection, ConnectionError, MessageError};

use super::interface::Interface;

/// Messages before the thread looks at what else there is.
const MESSAGES_MAX: usize = 64;
/// How long a driver that has taken up no packets keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a driver goes.
pub(super) enum End {
    /// By itself.
    Left,
    /// We end it.
    Sent(String),
}

impl From<MessageError> for End {
    fn from(refusal: MessageError) -> End {
        End::Sent(refusal.to_string())
    }
}

impl From<ConnectionError> for End {
    fn from(error: ConnectionError) -> End {
        match error {
            ConnectionError::Closed => End::Left,
            error => End::Sent(error.to_string()),
        }
    }
}

/// The memory that it shares, and where its rings are given to.
struct Shared<'a> {
    interface: &'a Interface,
    unsealed: UnsealedPolicy,
    memory: Option<Arc<Memory>>,
}

impl Device for Shared<'_> {
    type Fd = OwnedFd;

    fn share(&mut self, memory: Vec<(MemoryRegion, OwnedFd)>) -> Result<(), MessageError> {
        // What was there goes first, as there may not be enough for both.
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

    fn call(&mut self, ring: u16, file: Option<OwnedFd>) {
        self.interface.call(ring, file);
    }
}

/// One connection. Nothing of it is left when it is dropped.
pub(super) struct Peer<'a> {
    line: Connection,
    session: Session,
    shared: Shared<'a>,
    since: Instant,
    /// True if packets have flowed.
    was_up: bool,
}

impl<'a> Peer<'a> {
    pub(super) fn new(socket: OwnedFd, interface: &'a Interface, unsealed: UnsealedPolicy) -> Peer<'a> {
        Peer {
            line: Connection::new(socket),
            session: Session::new(interface.pairs(), interface.offered()),
            shared: Shared {
                interface,
                unsealed,
                memory: None,
            },
            since: Instant::now(),
            was_up: false,
        }
    }

    /// Returns true if it must be looked at now and then, without an event.
    pub(super) fn ticks(&self) -> bool {
        self.shared
            .memory
            .as_ref()
            .is_some_and(|memory| memory.can_shrink())
    }

    /// When another one would have its place.
    pub(super) fn yields_at(&self) -> Option<Instant> {
        (!self.session.is_up()).then(|| self.since + PATIENCE)
    }

    /// Looks whether it may stay.
    pub(super) fn check(&self) -> Result<(), End> {
        if let Some(violation) = self.shared.interface.violation() {
            return Err(End::Sent(violation.to_string()));
        }
        if let Some(memory) = &self.shared.memory {
            memory.check()?;
        }
        Ok(())
    }

    /// Hears what it says.
    pub(super) fn hear(&mut self) -> Result<(), End> {
        for _ in 0..MESSAGES_MAX {
            let Some(received) = self.line.receive()? else {
                return Ok(());
            };
            let (message, fds) = (received.message, received.fds);
            tracing::trace!(device = %self.shared.interface.name, ?message, "vhost: the driver says");
            let reply = self
                .session
                .receive(message, received.needs_reply, fds, &mut self.shared)?;
            if let Some(reply) = reply {
                self.line.send(&reply)?;
            }
            self.tell();
        }
        Ok(())
    }

    /// Has the link say whether packets flow.
    fn tell(&mut self) {
        let (interface, is_up) = (self.shared.interface, self.session.is_up());
        if !interface.set_up(is_up) {
            return;
        }
        // A driver may stop and start its queues as often as it likes.
        if is_up && !self.was_up {
            let features = format_args!("{:#x}", self.session.features().bits());
            tracing::info!(device = %interface.name, %features, "vhost: a peer is there");
        } else {
            tracing::debug!(device = %interface.name, is_up, "vhost: the peer's queues");
        }
        self.was_up |= is_up;
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        self.session.end(&mut self.shared);
        let interface = self.shared.interface;
        interface.forget();
        if self.was_up {
            tracing::info!(device = %interface.name, "vhost: the peer is gone");
        }
    }
}

impl AsFd for Peer<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}
