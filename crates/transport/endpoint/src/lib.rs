//! UDP over IPv4 and IPv6 on Ethernet frames, for a process with a ring of frames as its network interface,
//! instead of the kernel.
//!
//! ```text
//!            frames                                              datagrams
//!           ────────>  receive() ── Received::Datagram ────────>
//!   ring                  │ ARP, ND, ICMP                         caller
//!           <────────  poll_transmit() (answers, solicitations)
//!           <────────  send() ── head and payload, one copy <────
//!                         next_timeout(), on_timeout() <────────  clock
//!                         poll_event()  ───────────────────────>
//! ```
//!
//! The crate is sans-IO: time is an argument, frames are slices, and randomness comes from a seed. Every
//! table and queue has a limit with a name ([`limits`]). At its limit, the endpoint drops and counts; no
//! table or queue grows further.
//!
//! # Trust
//! Anyone on the link can send any frame, and anyone on the path can send ICMP. A frame from outside therefore:
//! * creates a neighbour only if it is addressed to this endpoint, and at most [`limits::UNSOLICITED_NEIGHBOURS_MAX`] of them are
//!   kept;
//! * never replaces the MAC address of a neighbour at once: the known address is probed first, and stays if it answers;
//! * lowers the path MTU only if it quotes a packet that was sent, by identification or flow label, length and checksum;
//! * gets at most one answer, rate limited, no longer than itself except for the quotation in an ICMP error.

#![forbid(unsafe_code)]

mod addresses;
mod arp;
mod config;
mod counters;
mod echo;
mod endpoint;
mod errors;
mod event;
mod frames;
mod head;
pub mod limits;
mod nd;
mod neighbours;
mod paths;
mod receive;
mod segments;
mod send;
mod solicitations;
mod token_bucket;

pub use config::{AddressError, Config, ConfigError, InterfaceAddress};
pub use counters::{Counters, DropReason};
pub use endpoint::{BindError, Endpoint};
pub use event::{Event, UnreachableReason};
pub use receive::Received;
pub use send::{FrameWriter, SendError};
