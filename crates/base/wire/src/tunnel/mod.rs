//! Packets in packets: VXLAN (RFC 7348), GRE with Ethernet inside (RFC 2784 and 2890), GTP-U (3GPP TS 29.281) and
//! MPLS over UDP (RFC 7510), over IPv4 and IPv6.
//!
//! [`Outer`] finds the outer headers of a packet, [`Envelope`] adds them. Neither touches the inner packet.

mod envelope;
mod outer;

pub use envelope::{Ends, Entropy, Envelope, TooLong, entropy};
pub use millrace_types::TunnelKind;
pub use outer::{Outer, OuterError};
