//! The sender: one thread that owns the socket, the protocol's state and pacing, for all receivers.
//!
//! ```text
//!  Dialing ── connected ──> Offered ── HAVE END ──> Checking ── KEEP, ACCEPT ──> Running ── COMPLETE ──> Ended
//!     └──────────── no answer, REFUSE, lost, stopped ─────────────┴──────────────────┴──────────────────> Ended
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

pub use options::{SendError, SendOptions, Target};
pub use run::{send, send_over};
