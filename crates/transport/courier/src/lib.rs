//! Transfers of files to many receivers over UDP sockets, as a normal user.
//!
//! ```text
//!             one UDP port                                        one UDP port
//!   ┌────────────────────────────┐    QUIC: control      ┌────────────────────────────┐
//!   │ sender                     │ <───────────────────> │ receiver                   │
//!   │   Control (quinn-proto)    │                       │   Control (quinn-proto)    │
//!   │   Group   (millrace-       │    DATA, REPORT       │   Receiver                 │
//!   │            transport)      │ ────────────────────> │                            │
//!   │   Source  (files)          │ <──────────────────── │   Sink  (files)            │
//!   └────────────────────────────┘    FEEDBACK           └────────────────────────────┘
//! ```
//!
//! One thread on each side owns the socket, the protocol's state and pacing; reading, hashing, sealing and writing have threads of
//! their own. A program starts with [`Session`]; [`send`] and [`receive`] do the same in the caller's thread. A datagram whose
//! first two bits are clear belongs to the data path; all others belong to QUIC (ADR 18).

#![forbid(unsafe_code)]

pub mod access;
mod base32;
mod clock;
mod control;
mod event;
pub mod files;
pub mod identity;
mod inbox;
mod interrupts;
pub mod io;
mod key_log;
pub mod local;
mod message;
mod pool;
mod progress;
mod receiver;
mod refusal;
mod request;
mod sender;
mod session;
mod shared_rate;
pub mod target;
pub mod ticket;
mod tls;
mod window;

pub use control::ControlError;
pub use event::{
    EXIT_INTEGRITY, EXIT_PARTIAL, EXIT_REFUSED, EXIT_RESUMABLE, Event, Limit, Outcome, exit_status,
};
pub use interrupts::Interrupts;
pub use key_log::KeyLog;
pub use message::read_control_stream;
pub use receiver::{KeptTicket, ReceiveError, ReceiveOptions, receive, receive_over};
pub use refusal::RefuseCode;
pub use request::{RequestError, list};
pub use sender::{Policy, SendError, SendOptions, Stragglers, Target, send, send_over};
pub use session::{Session, SessionError, SessionHandle};
pub use shared_rate::SharedRate;

/// Returns the bytes of a receipt that the receiver signs.
fn receipt(root: &files::Value) -> Vec<u8> {
    [&b"millrace receipt 0 "[..], root].concat()
}
