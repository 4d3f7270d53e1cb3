//! Options and errors of a receiver.

use super::kept_ticket::KeptTicket;
use crate::control::ControlError;
use crate::identity::{IdentityError, PublicKey};
use crate::key_log::KeyLog;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Options of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// Addresses for the ticket; if empty, those of this machine. Port 0 stands for the port that is listened at.
    pub addresses: Vec<SocketAddr>,
    /// True if the receiver ends after the first sender.
    pub once: bool,
    /// Senders that need no ticket.
    pub allow: Vec<PublicKey>,
    /// The time for which the ticket is valid.
    pub expiry: Duration,
    /// The file that keeps the ticket of an incomplete transfer, for a receiver that ends after the first sender.
    pub kept_ticket: Option<KeptTicket>,
    /// Silence after which a sender counts as lost.
    pub silence: Duration,
    /// The time that a lost sender has to come back.
    pub patience: Duration,
    /// The file for the keys of connections, with which captures can be read.
    pub key_log: Option<KeyLog>,
}

impl ReceiveOptions {
    /// Returns the file of the ticket, if the receiver ends after the first sender. Other receivers need no
    /// file.
    pub(super) fn kept_ticket(&self) -> Option<&KeptTicket> {
        self.kept_ticket.as_ref().filter(|_| self.once)
    }
}

/// The time that the daemon's session may take to begin once the daemon has answered: it may be busy with other transfers.
pub(super) const SESSION: Duration = Duration::from_secs(30);

impl Default for ReceiveOptions {
    fn default() -> ReceiveOptions {
        ReceiveOptions {
            listen: SocketAddr::from(([0, 0, 0, 0], 7800)),
            addresses: Vec::new(),
            once: false,
            allow: Vec::new(),
            expiry: Duration::from_secs(24 * 3_600),
            kept_ticket: None,
            silence: Duration::from_secs(20),
            patience: Duration::from_secs(600),
            key_log: None,
        }
    }
}

/// The reason why a receiver ended with an error.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// The address cannot be used.
    #[error("cannot listen at {address}: {error}; give another one with --listen")]
    Listen { address: SocketAddr, error: io::Error },
    /// The socket fails.
    #[error("the UDP socket failed: {0}")]
    Socket(#[from] io::Error),
    /// TLS fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system gives no random numbers.
    #[error(transparent)]
    Random(#[from] IdentityError),
}
