//! The sender: one thread that owns the socket, the protocol's state and pacing, for all receivers.
//!
//! ```text
//!     ┌───────────────────────────── lost: Waiting, with backoff ────────┐
//!     v                                                                  │
//!  Dialing ── connected ──> Offered ── HAVE END ──> Checking ── KEEP, ACCEPT ──> Running ── COMPLETE ──> Receipt ──> Ended
//!     └──────────── no answer at first, REFUSE, closed, stopped ──┴──────────────────┴─────────────────────────────> Ended
//! ```
//!
//! The files depend on each other in one direction: `run` calls `session`, `packets` and `progress`; these three share the
//! state in `state`.

mod options;
mod packets;
mod progress;
mod run;
mod session;
mod state;

pub use options::{Policy, SendError, SendOptions, Stragglers, Target};
pub(crate) use run::{SenderSpec, bind_for};
pub use run::{send, send_over};
pub(crate) use session::{BACKOFF, BACKOFF_MAX};

#[cfg(test)]
mod tests;
