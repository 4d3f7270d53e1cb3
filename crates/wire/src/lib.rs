//! What a frame looks like: checked views of headers, builders, checksums, and the one-pass parser that
//! the packet path uses.
//!
//! Everything here is pure: bytes in, values out. Nothing allocates except [`Frame`] and [`FramePool`],
//! which are the packet buffers of a switch that runs without DPDK.

#![forbid(unsafe_code)]

mod packet;

pub use packet::{Frame, FramePool, NoHeadroom, Packet};
