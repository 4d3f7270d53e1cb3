//! Bulk data from one sender to many receivers over long paths that lose packets.
//!
//! The crate is sans-IO: the caller passes datagrams, the time and random seeds in, and takes datagrams and deadlines out.
//! It reads no clock, opens no socket and starts no thread, so that the same code runs over sockets and in virtual time.
//!
//! ```text
//!            sender (one group)                                 receiver
//!  source ─> slab cache of sealed packets                 reassembly by extents ─> caller
//!                │        one flow for each receiver           ^
//!                v        ┌──────────────────────┐             │
//!              Group ──>  │ plan: fresh, repairs │   DATA      │
//!                         │ pacer, window        │ ──────────> MAC, replay window, open
//!                         │ in flight, loss      │             │
//!                         │ controller (BBR)     │ <────────── acknowledgements, credit
//!                         └──────────────────────┘  FEEDBACK
//!                                    REPORT ──────────────────> what need not be repeated
//! ```
//!
//! 1. A [`packet::Data`] packet is sealed once for the whole group ([`seal`]) and sent N times, each time after a head of
//!    16 bytes that belongs to one receiver (ADR 16).
//! 2. Each receiver has a [`flow::Flow`] of its own: packet numbers, loss detection, congestion control and pacing. No
//!    receiver waits for another.
//! 3. A [`receiver::Receiver`] acknowledges packet numbers, not data. A lost packet is never sent again under its number:
//!    its bytes return to the flow's plan and leave as a new packet.
//! 4. Congestion control is BBR version 3 with a loss floor ([`congestion::bbr`]),
//!    behind the trait [`congestion::Controller`].
//!
//! Bytes that are wrong are never delivered: a datagram that fails its checks is dropped and counted by name ([`Discard`]).

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::single_range_in_vec_init, reason = "sets of one range"))]

pub mod congestion;
pub mod extent;
pub mod flow;
pub mod pacing;
pub mod packet;
pub mod random;
pub mod ranges;
pub mod receiver;
pub mod rtt;
pub mod seal;
pub mod sender;
mod slab;

pub use receiver::Discard;
