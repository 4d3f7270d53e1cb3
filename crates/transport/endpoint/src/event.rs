//! Events of an endpoint, for its caller.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use millrace_types::Mac;

/// The reason why packets do not reach a destination.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnreachableReason {
    /// A router has no route.
    Network,
    /// The last router cannot reach the host.
    Host,
    /// The host has no listener at the port.
    Port,
    /// The host does not speak the protocol.
    Protocol,
    /// A filter forbids it.
    Prohibited,
    /// The hop limit was exceeded, most likely by a routing loop.
    HopLimit,
    /// The next hop answers neither ARP nor neighbour discovery.
    NoNeighbour,
}

impl fmt::Display for UnreachableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnreachableReason::Network => "a router has no route",
            UnreachableReason::Host => "the last router does not reach the host",
            UnreachableReason::Port => "nobody listens at the port",
            UnreachableReason::Protocol => "the host does not speak UDP",
            UnreachableReason::Prohibited => "a filter forbids it",
            UnreachableReason::HopLimit => "the hop limit was exceeded",
            UnreachableReason::NoNeighbour => "the next hop answers neither ARP nor neighbour discovery",
        })
    }
}

/// A change that the owner of an endpoint has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An own address passed duplicate address detection and is used from now on.
    Usable { address: IpAddr },
    /// Another host uses an own address.
    Conflict {
        address: IpAddr,
        /// The MAC address of the other host.
        mac: Mac,
        /// True if the address is used nevertheless: it passed duplicate address detection before.
        usable: bool,
    },
    /// A destination cannot be reached. For [`UnreachableReason::NoNeighbour`], `to` is the next hop, with
    /// port 0.
    Unreachable {
        /// The destination of the packet.
        to: SocketAddr,
        reason: UnreachableReason,
    },
    /// The path MTU to an address changed.
    PathMtu {
        /// The address.
        to: IpAddr,
        /// Bytes of the largest IP packet that passes.
        mtu: u16,
    },
}
