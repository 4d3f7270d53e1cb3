//! The controller side of OpenFlow 1.3: a connection with a switch, without sockets and without a clock, and a driver that
//! runs it on tokio.
//!
//! ```text
//!   caller            driver                    connection (sans-IO)             switch
//!   dump()   ──────►  task of the session ────► operations, one at a time ─────► multipart, bundles, barriers
//!   commit() ◄──────  (socket, clock)     ◄──── outcomes, each exactly once ◄─── replies, errors by xid
//!   events() ◄──────                      ◄──── bounded queue ◄───────────────── port_status, packet_in, flow updates
//! ```
//!
//! - [`Connection`]: bytes in, [`Outcome`]s and [`Event`]s out.
//! - [`Dump`]: the whole content of a switch, all parts or an error.
//! - [`assembly`]: multipart replies from their messages.
//! - [`driver`]: listeners, TLS, sessions.

#![forbid(unsafe_code)]

pub mod assembly;
mod connection;
pub mod driver;
mod dump;
mod event;
mod operation;
mod outgoing;

pub use connection::{CloseReason, Connection, Counters, OperationId, Progress, Settings, SubmitError};
pub use dump::{Dump, DumpFilter, DuplicateEntry, FlowIdentity};
pub use event::{Event, LostEvents};
pub use operation::{Applied, CommitError, DumpError, Outcome, RequestError};
