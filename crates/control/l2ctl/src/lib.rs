//! Layer 2 control protocols, without IO, clock and randomness: LACP, RSTP and LLDP.
//!
//! ```text
//!                 frames of 01:80:c2:00:00:0x, times
//!                               │
//!        ┌──────────────────────┼──────────────────────┐
//!        ▼                      ▼                      ▼
//!   lacp::Lag             rstp::Bridge            lldp::Agent
//!   members that          discarding, learning,   neighbours of
//!   collect, distribute   forwarding; flushes     the ports
//!        │                      │                      │
//!        └──────────────────────┴──────────► frames to send, the next deadline
//! ```
//!
//! Each of them takes frames, link changes and the time, and returns frames and state changes. `deadline` is the time
//! at which `poll` is due if nothing arrives before. Work for one frame is bounded by the number of ports, memory by
//! the number of ports and by constants that the modules name.

#![forbid(unsafe_code)]

mod frame;
pub mod lacp;
pub mod lldp;
pub mod rstp;

pub use frame::{BRIDGE_GROUP, LLDP_NEAREST_BRIDGE, SLOW_PROTOCOLS, Transmit};
