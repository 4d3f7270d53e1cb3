//! A NETCONF server: RFC 6241 over the framing of RFC 6242, with the candidate, confirmed commit and validate capabilities,
//! with-defaults (RFC 6243), notifications (RFC 5277), get-schema (RFC 6022), YANG library (RFC 7895) and the roles of three groups (RFC 8341).
//!
//! ```text
//! bytes -> framing -> XML -> session -> operations -> Datastore (running, lock, confirmation)
//!                               |           |
//!                            shared: candidate, its lock, sessions
//! ```

#![forbid(unsafe_code)]

mod capabilities;
mod filter;
mod framing;
mod notification;
mod operations;
mod reply;
mod session;
mod shared;

pub use capabilities::{BASE_1_0, BASE_1_1};
pub use framing::{Framing, FramingError, MESSAGE_SIZE_MAX};
pub use notification::ConfigChange;
pub use session::{Outcome, Session};
pub use shared::{Ended, Shared};

/// The kind of comment that records the identifier of a confirmed commit.
pub const CONFIRMED_COMMIT: &str = "NETCONF confirmed commit";
