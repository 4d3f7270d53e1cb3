//! Errors of words that name no receiver.

use crate::identity::KeyTextError;
use crate::ticket::TicketError;
use std::io;
use thiserror::Error;

/// A word that names no receiver.
#[derive(Debug, Error)]
pub enum TargetError {
    /// A name is not known.
    #[error("cannot resolve {address}: {error}")]
    Resolve { address: String, error: io::Error },
    /// The key of a receiver is not known.
    #[error(
        "the key of {address} is not known; use the ticket that `millrace receive` prints there, or KEY@{address}"
    )]
    UnknownKey { address: String },
    /// A word is no path of a daemon.
    #[error(
        "`{word}` is no path of a daemon; expected millrace://HOST/GRANT/PATH or millrace://KEY@HOST:PORT/GRANT/PATH"
    )]
    Url { word: String },
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyTextError),
    /// A ticket cannot be read.
    #[error(transparent)]
    Ticket(#[from] TicketError),
}
