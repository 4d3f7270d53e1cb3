//! The reasons why a connection ends, and why it does not accept an operation.

use millrace_openflow::ErrorCode;
use thiserror::Error;

/// The reason why a connection was closed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CloseReason {
    /// The switch does not support version 1.3.
    #[error("the switch does not support OpenFlow 1.3: its HELLO has version {version:#04x}")]
    Incompatible {
        /// Version in the header of the switch's HELLO.
        version: u8,
    },
    /// The first message was not HELLO.
    #[error("the switch's first message has type {type_}: expected 0 (HELLO)")]
    NotHello {
        /// Type of the message.
        type_: u8,
    },
    /// The switch refused HELLO or FEATURES_REQUEST.
    #[error("the switch refuses the connection: {code}")]
    Refused {
        /// The error of the switch.
        code: ErrorCode,
    },
    /// The connection is an auxiliary connection.
    #[error(
        "the connection is auxiliary connection {id}: expected a main connection; remove auxiliary ones from the switch"
    )]
    Auxiliary {
        /// The number of the auxiliary connection.
        id: u8,
    },
    /// The length in a header is smaller than the header, so the next message cannot be found.
    #[error("a message header has length {length}: expected at least 8, the size of the header")]
    Framing {
        /// The value in the message.
        length: u16,
    },
    /// HELLO or FEATURES_REPLY did not arrive in time.
    #[error("the handshake was not complete before the timeout")]
    HandshakeTimeout,
    /// The switch neither sent bytes nor read output after `echo_misses` consecutive ECHO_REQUESTs.
    #[error("the switch answered no echo request before the timeout")]
    EchoTimeout,
    /// An operation was not complete in time.
    #[error("the {operation} was not complete before the timeout")]
    OperationTimeout {
        /// The kind of operation.
        operation: &'static str,
    },
    /// The switch sends ECHO_REQUESTs but does not read the replies.
    #[error("the switch does not read the replies to its echo requests")]
    NotReading,
    /// The switch closed the connection.
    #[error("the switch closed the connection")]
    Eof,
    /// The network ended the connection.
    #[error("{0}")]
    Io(String),
    /// The controller closed the connection.
    #[error("the controller closed the connection")]
    Local,
    /// The listener closed the connection for a newer one, before the caller established it.
    #[error("the connection was closed for a newer one before the switch had identified itself")]
    Evicted,
    /// The operation was not submitted; the connection may be open.
    #[error(transparent)]
    NotSubmitted(SubmitError),
}

/// The reason why an operation was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SubmitError {
    /// The handshake is not complete.
    #[error("the handshake with the switch is not complete")]
    NotReady,
    /// The connection is closed.
    #[error("the connection with the switch is closed")]
    Closed,
    /// The maximum number of incomplete operations is reached.
    #[error("{max} operations wait for the switch: wait for their outcomes")]
    Busy {
        /// The maximum number.
        max: usize,
    },
    /// The switch does not read.
    #[error("the switch does not read: the message is dropped")]
    Congested,
    /// The message exceeds the maximum size of an OpenFlow message.
    #[error("the message is too long for OpenFlow: expected at most 65535 bytes")]
    TooLong,
}
