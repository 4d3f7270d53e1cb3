//! Targets, options and errors of a transfer.

use crate::control::ControlError;
use crate::files::FilesError;
use crate::identity::{IdentityError, PublicKey};
use crate::ticket::Secret;
use millrace_transport::seal::SealError;
use millrace_transport::sender::SealPieceError;
use millrace_types::BitRate;
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// A receiver to send to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name in events.
    pub name: String,
    /// Addresses; the first that answers is used.
    pub addresses: Vec<SocketAddr>,
    /// The receiver's key.
    pub key: PublicKey,
    /// The secret of a ticket; without one, the receiver must know our key.
    pub secret: Option<Secret>,
}

/// Options of a transfer.
#[derive(Clone, Debug, Default)]
pub struct SendOptions {
    /// An upper bound for all receivers together.
    pub rate: Option<BitRate>,
    /// The loss that is not taken for congestion, if not the default.
    pub loss_tolerance: Option<f64>,
}

/// A transfer that cannot go on for any receiver.
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
}
