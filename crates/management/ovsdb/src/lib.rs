//! A client of OVSDB (RFC 7047), without IO or clock: bytes and times in, bytes and events out.
//!
//! ```text
//!  bytes of the server ─▶ Splitter ─▶ Session ─▶ Replica      (the monitored rows)
//!                                       │ ▲
//!                    requests, answers ◀┘ └─ transactions
//! ```
//!
//! [`Splitter`] finds the ends of JSON texts that follow each other without separators, within limits of size and depth.
//! [`Session`] takes the lock, reads the schema, and monitors columns by the newest method that the server knows.
//! [`Replica`] holds the rows; a new connection starts with an empty one, so that nothing of an earlier database remains.

#![forbid(unsafe_code)]

mod operation;
mod replica;
mod schema;
mod session;
mod splitter;
mod uuid;
mod value;

pub use operation::{Operation, RowRef};
pub use replica::{Replica, ReplicaError, Row};
pub use schema::{Schema, SchemaError};
pub use session::{Event, Monitored, Outcome, Session, Settings, TransactionId, Violation};
pub use splitter::{Splitter, SplitterError};
pub use uuid::{Uuid, UuidError};
pub use value::{Atom, Datum, ValueError};
