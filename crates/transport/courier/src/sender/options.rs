//! Targets, options and errors of a transfer.

use crate::control::ControlError;
use crate::files::{FilesError, Requests};
use crate::identity::{IdentityError, PublicKey};
use crate::key_log::KeyLog;
use crate::ticket::{Secret, Ticket};
use millrace_transport::seal::SealError;
use millrace_transport::sender::SealPieceError;
use millrace_types::BitRate;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// A receiver to send to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name in events.
    pub name: String,
    /// The addresses; the first one that answers is used.
    pub addresses: Vec<SocketAddr>,
    /// The receiver's key.
    pub key: PublicKey,
    /// The secret of a ticket; without one, the receiver must know our key.
    pub secret: Option<Secret>,
    /// The path at a daemon for the files: the name of a grant, and a path below it. Empty: the only grant
    /// that lets the key write.
    pub into: Vec<u8>,
}

impl Target {
    /// Returns the receiver of a ticket. Its name is its first address.
    pub fn from_ticket(ticket: &Ticket) -> Target {
        let name = ticket.addresses.first().map(ToString::to_string);
        Target {
            name: name.unwrap_or_default(),
            addresses: ticket.addresses.clone(),
            key: ticket.key,
            secret: Some(ticket.secret),
            into: Vec::new(),
        }
    }
}

/// The congestion control of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Shares paths with other traffic: BBR version 3 with a floor under loss (ADR 15).
    #[default]
    Fair,
    /// Uses only the capacity that other traffic leaves: LEDBAT++.
    Background,
    /// Sends to each receiver at this rate, whatever the loss, unless most packets are lost.
    Fixed(BitRate),
}

/// The treatment of receivers that are slower than the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stragglers {
    /// The transfer continues until the last one has everything.
    #[default]
    Keep,
    /// A receiver that is not done this long after the first one was done is detached. It can be resumed
    /// later.
    Detach(Duration),
    /// The transfer ends when this number of receivers have everything; the others are detached.
    Quorum(usize),
}

/// Options of a transfer.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The maximum rate of all receivers together.
    pub rate: Option<BitRate>,
    /// The share of lost packets that does not count as congestion; `None`: the default.
    pub loss_tolerance: Option<f64>,
    /// The congestion control.
    pub policy: Policy,
    /// The treatment of slow receivers.
    pub stragglers: Stragglers,
    /// Requests to the receivers.
    pub requests: Requests,
    /// Silence after which a receiver counts as lost, and is dialled again.
    pub silence: Duration,
    /// The time for which a lost receiver is dialled again.
    pub patience: Duration,
    /// The file for the keys of connections, with which captures can be read.
    pub key_log: Option<KeyLog>,
}

impl Default for SendOptions {
    fn default() -> SendOptions {
        SendOptions {
            rate: None,
            loss_tolerance: None,
            policy: Policy::default(),
            stragglers: Stragglers::default(),
            requests: Requests::default(),
            silence: Duration::from_secs(20),
            patience: Duration::from_secs(600),
            key_log: None,
        }
    }
}

/// A transfer that cannot continue for any receiver.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket fails.
    #[error("the UDP socket failed: {0}")]
    Socket(#[from] io::Error),
    /// TLS or an address fails.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The files cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A packet cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealPieceError),
    /// The content key cannot be used.
    #[error(transparent)]
    Key(#[from] SealError),
    /// The system gives no random numbers.
    #[error(transparent)]
    Random(#[from] IdentityError),
    /// The thread that reads the files has ended.
    #[error("the thread that reads the files has ended; report this as a bug")]
    Reader,
}
