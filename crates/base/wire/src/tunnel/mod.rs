//! Packets in packets: VXLAN (RFC 7348), GRE with Ethernet inside (RFC 2784 and 2890), GTP-U (3GPP TS 29.281) and
//! MPLS over UDP (RFC 7510), over IPv4 and IPv6.
//!
//! [`Outer`] finds the outer headers of a packet, [`OuterHeaders`] adds them. Neither touches the inner packet.

mod outer;
mod outer_headers;

pub use millrace_types::TunnelKind;
pub use outer::{Outer, OuterError};
pub use outer_headers::{Entropy, OuterFields, OuterHeaders, TooLong, entropy};
