//! Senders and receivers of `millrace-transport` over emulated paths, in virtual time and on one thread. A
//! seed determines each run.
//!
//! ```text
//!   Flow ──> policer ──> link (wan emulator: rate, queue, loss, delay) ──> Receiver
//!    ^                     └ shared by the flows that name it                 │
//!    └──────────── return path (wan emulator, one for each flow) <────────────┘
//! ```
//!
//! Packets carry no bytes: a simulation of 10 Gbit/s over 400 ms costs about a microsecond a packet. The
//! flows and receivers are those of the product, with their acknowledgements, loss detection and pacing.
//! [`session`] simulates groups with bytes, heads and seals. [`rows`] has the gates of docs/gates.md
//! that apply in virtual time.
//!
//! [`rivals`] has the controllers for comparison: Reno, CUBIC and BBR version 1.

#![forbid(unsafe_code)]

mod engine;
pub mod measure;
mod network;
mod queue;
pub mod rivals;
pub mod rows;
pub mod session;

pub use engine::{FlowReport, FlowSpec, Simulation};
pub use network::{AuditError, LinkCounters, LinkSpec, PolicerSpec};

/// Bytes of payload of a full packet: MTU 1500 over IPv4.
pub const PAYLOAD: u16 = 1_428;
/// Bytes of the IP packet that carries a full payload.
pub const PACKET: u64 = 1_500;
/// Bytes of the IPv4 and UDP headers.
pub const HEADERS: u16 = 28;
/// Bytes of the Ethernet header, which the emulator counts.
pub const ETHERNET: usize = 14;
/// Bytes of the Ethernet header and frame check sequence, which take link rate.
pub const FRAMING: f64 = 18.0;

/// Returns the maximum payload rate of a link of this rate, in bit/s: without headers and lost packets.
pub fn ideal_goodput(link_bps: f64, loss: f64) -> f64 {
    link_bps * f64::from(PAYLOAD) / (PACKET as f64 + FRAMING) * (1.0 - loss)
}

/// Returns the maximum rate of IP packets on a link of this rate, in bit/s, as controllers count.
pub fn ideal_rate(link_bps: f64) -> f64 {
    link_bps * PACKET as f64 / (PACKET as f64 + FRAMING)
}
