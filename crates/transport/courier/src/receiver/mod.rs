//! The receiver: one thread that owns the socket and the protocol's state of every sender that it admits.
//!
//! ```text
//!  Greeting ── HELLO is admitted ──> Offered ── OFFER, MANIFEST END ──> Keeping ── KEEP ──> Running ── everything in place ──> Ended
//!      └──────────── not admitted, not valid, lost ────────┴─────────────────┴─────────────────┴──────────────────────────> Ended
//! ```
//!
//! A session that loses its sender waits for it: the writer makes verified extents durable and ends. A sender
//! that comes back offers the same files again, and sends only the missing bytes.
//!
//! A daemon also answers requests (`jobs`): FETCH by a session that sends, in a separate thread, and LIST.
//! The peer that sends FETCH is a receiver that dials first, and is dialled back (`fetch`).
//!
//! The files depend on each other in one direction: `run` calls `link`, `link` calls `admission`, `jobs` and
//! `fetch`. All share the peers in `state`; each admitted sender has a `session` there.

mod admission;
mod fetch;
mod jobs;
mod kept_ticket;
mod link;
mod options;
mod progress;
mod rate_limit;
mod requests;
mod run;
mod session;
mod state;

pub use kept_ticket::KeptTicket;
pub use options::{ReceiveError, ReceiveOptions};
pub(crate) use requests::Fetch;
pub(crate) use run::ReceiverSpec;
pub use run::{receive, receive_over};
pub(crate) use state::FileDestination;

#[cfg(test)]
mod tests;
