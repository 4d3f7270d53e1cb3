//! Operations: exchanges of several messages with one outcome. A connection runs one operation at a time, in
//! the order of submission, because a switch serves its requests in order.

mod commit;
mod dump;
mod request;

use millrace_openflow::multipart::MultipartType;
use millrace_openflow::{DecodeError, ErrorCode, ErrorMessage, Message, MessageType, Port};
use millrace_types::Xid;
use thiserror::Error;

pub(crate) use commit::{BundleSupport, Commit};
pub(crate) use dump::DumpOperation;
pub(crate) use request::Request;

use crate::assembly::AssemblyError;
use crate::connection::CloseReason;
use crate::dump::Dump;
use crate::outgoing::Outgoing;

/// The reason why a listing failed. The contents of the switch are then unknown, not empty.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DumpError {
    /// The switch refused a part.
    #[error("the switch refuses the {part} listing: {code}")]
    Refused {
        part: MultipartType,
        /// The error of the switch.
        code: ErrorCode,
    },
    /// The messages of a part do not belong together.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// A message cannot be decoded.
    #[error("a message of the {part} listing cannot be decoded: {error}")]
    Malformed { part: MultipartType, error: DecodeError },
    /// The connection ended, or the listing did not end in time.
    #[error("the listing is not complete: {0}")]
    Closed(CloseReason),
}

/// The part of a failed commit that the switch applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Applied {
    /// The switch applied nothing.
    Nothing,
    /// The switch may have applied some messages, because it refuses bundles, or meters in bundles.
    Partly,
    /// The switch did not confirm the COMMIT or the barrier after it. It applied either all messages or none.
    Unknown,
}

/// The reason why a commit failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CommitError {
    /// The switch refused a message, or the bundle.
    #[error(
        "the switch refuses {}: {code}",
        .message.as_ref().map_or_else(|| "the bundle".to_owned(), ToString::to_string)
    )]
    Refused {
        /// The index of the message; `None` if the error concerns the bundle.
        index: Option<usize>,
        /// The xid of the message that the switch refused.
        xid: Xid,
        /// The message that the switch refused.
        message: Option<Box<Message>>,
        /// The error of the switch.
        code: ErrorCode,
        /// The number of further errors after the first.
        more_errors: usize,
        /// The part that the switch applied.
        applied: Applied,
    },
    /// A message cannot be part of a commit. No message was sent.
    #[error("message {index} is a {type_}: expected flow_mod, group_mod, meter_mod or port_mod")]
    NotAModification {
        /// The index of the message.
        index: usize,
        /// The type of the message.
        type_: MessageType,
    },
    /// A message is too long to be sent.
    #[error("message {index} is too long for a message of OpenFlow: split it")]
    TooLong {
        /// The index of the message.
        index: usize,
        /// The part that the switch applied.
        applied: Applied,
    },
    /// The connection ended.
    #[error("the commit is not confirmed: {reason}")]
    Closed {
        reason: CloseReason,
        /// The part that the switch applied.
        applied: Applied,
    },
}

/// The reason why a request has no reply.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RequestError {
    /// The switch refused the request.
    #[error("the switch refuses {request}: {code}")]
    Refused {
        /// The type of the request.
        request: MessageType,
        /// The error of the switch.
        code: ErrorCode,
    },
    /// The messages of a multipart reply do not belong together.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// The reply cannot be decoded.
    #[error("the reply to {request} cannot be decoded: {error}")]
    Malformed {
        /// The type of the request.
        request: MessageType,
        error: DecodeError,
    },
    /// The type of the reply does not match the request.
    #[error("the switch answers {request} with {found}")]
    UnexpectedReply {
        /// The type of the request.
        request: MessageType,
        /// The type of the reply.
        found: MessageType,
    },
    /// The request is too long to be sent.
    #[error("{request} is too long for a message of OpenFlow: split it")]
    TooLong {
        /// The type of the request.
        request: MessageType,
    },
    /// The connection ended.
    #[error("there is no reply: {0}")]
    Closed(CloseReason),
}

/// The outcome of an operation.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The result of a listing.
    Dump(Result<Box<Dump>, DumpError>),
    /// The result of a commit.
    Commit(Result<(), CommitError>),
    /// The result of a request.
    Reply(Result<Box<Message>, RequestError>),
}

/// A received message that answers the running operation.
#[derive(Debug)]
pub(crate) enum Received {
    /// A decoded message, and its size in bytes.
    Message(Message, usize),
    Error(ErrorMessage),
    /// A message that cannot be decoded.
    Malformed(DecodeError),
}

/// A unit of work on one switch, which ends with one result for the caller.
#[derive(Debug)]
pub(crate) enum Operation {
    Dump(DumpOperation),
    Commit(Commit),
    Request(Request),
}

impl Operation {
    /// Writes requests while `out` has room. `support` holds the messages that the switch accepts in bundles.
    pub(crate) fn pump(&mut self, support: &mut BundleSupport, out: &mut Outgoing) -> Option<Outcome> {
        match self {
            Operation::Dump(dump) => dump.pump(out).map(Outcome::Dump),
            Operation::Commit(commit) => commit.pump(support, out).map(Outcome::Commit),
            Operation::Request(request) => request.pump(out).map(Outcome::Reply),
        }
    }

    /// Returns true if the operation sent a message with this xid.
    pub(crate) fn owns(&self, xid: Xid) -> bool {
        match self {
            Operation::Dump(dump) => dump.owns(xid),
            Operation::Commit(commit) => commit.owns(xid),
            Operation::Request(request) => request.owns(xid),
        }
    }

    /// Handles a message with a xid that the operation owns.
    pub(crate) fn receive(
        &mut self,
        xid: Xid,
        received: Received,
        support: &mut BundleSupport,
    ) -> Option<Outcome> {
        match self {
            Operation::Dump(dump) => dump.receive(xid, received).map(Outcome::Dump),
            Operation::Commit(commit) => commit.receive(xid, received, support).map(Outcome::Commit),
            Operation::Request(request) => request.receive(xid, received).map(Outcome::Reply),
        }
    }

    /// Returns and removes the ports that a listing received.
    pub(crate) fn take_ports(&mut self) -> Option<Vec<Port>> {
        match self {
            Operation::Dump(dump) => dump.take_ports(),
            Operation::Commit(_) | Operation::Request(_) => None,
        }
    }

    /// Returns the outcome of an operation if a reply with an unknown xid interrupts its multipart reply.
    pub(crate) fn unexpected(&self, error: AssemblyError) -> Option<Outcome> {
        match self {
            Operation::Dump(_) => Some(Outcome::Dump(Err(error.into()))),
            Operation::Request(request) if request.is_multipart() => Some(Outcome::Reply(Err(error.into()))),
            Operation::Commit(_) | Operation::Request(_) => None,
        }
    }

    /// Returns the xid of the multipart request whose reply is incomplete; `None` if there is none.
    pub(crate) fn open_multipart(&self) -> Option<Xid> {
        match self {
            Operation::Dump(dump) => dump.open_multipart(),
            Operation::Request(request) if request.is_multipart() => request.xid(),
            Operation::Commit(_) | Operation::Request(_) => None,
        }
    }

    /// Returns the outcome of an operation when the connection ends.
    pub(crate) fn closed(&self, reason: CloseReason) -> Outcome {
        match self {
            Operation::Dump(_) => Outcome::Dump(Err(DumpError::Closed(reason))),
            Operation::Commit(commit) => Outcome::Commit(Err(CommitError::Closed {
                reason,
                applied: commit.applied_if_closed(),
            })),
            Operation::Request(_) => Outcome::Reply(Err(RequestError::Closed(reason))),
        }
    }

    /// Returns the name of the operation for logs and errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Dump(_) => "listing",
            Operation::Commit(_) => "commit",
            Operation::Request(_) => "request",
        }
    }
}
