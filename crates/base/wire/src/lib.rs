//! Packet formats: checked views of headers, builders, checksums, and the one-pass parser that
//! the packet path uses.
//!
//! The crate does no IO: its functions take bytes or values and return values. Each protocol has one module
//! with the same parts: a `View` of bytes that were checked once, a `Repr` with valid values, and `parse` and
//! `emit`, which convert between the two. Views and parsers never allocate; [`Frame`], [`FramePool`] and the
//! emitters of `Repr` do.

#![forbid(unsafe_code)]

pub mod arp;
mod bits;
pub mod bpf;
mod build;
pub mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod flow_hash;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
mod mark;
pub mod mpls;
pub mod nsh;
mod packet;
pub mod pbb;
pub mod rewrite;
pub mod sctp;
pub mod segment;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod virtio_net;
pub mod vlan;

pub use bits::{Dscp, Ecn, FlowLabel, Isid, MplsLabel, OutOfRange, Tc};
pub use build::Builder;
pub use error::HeaderError;
pub use ethernet::EtherType;
pub use ip::IpProto;
pub use ipv6::{ExtHeaders, Fragment};
pub use layers::{Depth, L3, L4, Layers};
pub use mark::Mark;
pub use packet::{Frame, FramePool, NoHeadroom, Packet};
