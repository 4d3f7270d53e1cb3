//! Observation of a packet in the router, for `millrace trace`. Other packets have [`NoObserver`], which compiles to
//! nothing.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use millrace_fib::{NextHopKind, NextHopSpec};
use millrace_pipeline::DropReason;
use millrace_types::PortNo;

use crate::class::PuntClass;
use crate::icmp::IcmpError;

/// A side of an interface that has an access list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclSide {
    In,
    Out,
}

/// One step of a packet in the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteStep {
    /// The packet arrived at an interface.
    Received {
        interface: Arc<str>,
        /// The index of the VRF of the interface.
        vrf: u16,
    },
    /// The packet is one of this machine: a tunnel that this VRF carries sends it.
    Own {
        /// The index of the VRF.
        vrf: u16,
    },
    /// An access list decided.
    Acl {
        side: AclSide,
        permits: bool,
    },
    /// The longest prefix of the destination has this group of next hops; `None` without a route.
    Route {
        destination: IpAddr,
        group: Option<u32>,
    },
    /// The flow takes this next hop.
    NextHop(NextHopSpec),
    /// The TTL or hop limit was lowered.
    TimeToLive {
        before: u8,
        after: u8,
    },
    /// The packet is cut into fragments of at most this size in bytes.
    Fragmented {
        mtu: u16,
    },
    /// The sender gets an ICMP error from this address.
    Error {
        error: IcmpError,
        source: IpAddr,
    },
    /// The sender gets no ICMP error: the packet is one about which none is sent (RFC 1812, section 4.3.2.7; RFC 4443,
    /// section 2.4), the interface has no address, or no buffer was free.
    NoError(IcmpError),
    /// The frame enters the VLAN of an interface.
    Sent {
        interface: Arc<str>,
        frame: Vec<u8>,
    },
    /// The kernel's interface gets the frame.
    Punted {
        interface: Arc<str>,
        class: PuntClass,
    },
    /// The packet belongs to a tunnel, whose bridge decapsulates it.
    Tunnel {
        /// The underlay port of the bridge.
        port: PortNo,
    },
    /// The packet waits for the MAC address of a neighbour.
    Waits {
        interface: Arc<str>,
        neighbour: IpAddr,
    },
    Dropped(DropReason),
}

impl fmt::Display for RouteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RouteStep::Received { interface, vrf } => {
                write!(f, "router: received at interface {interface}, VRF {vrf}")
            }
            RouteStep::Own { vrf } => write!(f, "router: a packet of this machine, VRF {vrf}"),
            RouteStep::Acl { side, permits } => {
                let side = if *side == AclSide::In {
                    "inbound"
                } else {
                    "outbound"
                };
                let verdict = if *permits { "permits" } else { "denies" };
                write!(f, "  the {side} access list {verdict} the packet")
            }
            RouteStep::Route {
                destination,
                group: None,
            } => write!(f, "  no route to {destination}"),
            RouteStep::Route {
                destination,
                group: Some(group),
            } => write!(f, "  the route to {destination} has next-hop group {group}"),
            RouteStep::NextHop(spec) => {
                f.write_str("  next hop: ")?;
                match spec.kind {
                    NextHopKind::Forward => write!(f, "neighbour {}", spec.destination)?,
                    NextHopKind::Glean => f.write_str("a neighbour whose MAC address is not known")?,
                    NextHopKind::Local => return f.write_str("this machine"),
                    NextHopKind::Blackhole => return f.write_str("blackhole"),
                    NextHopKind::Unreachable => return f.write_str("unreachable"),
                    NextHopKind::Prohibit => return f.write_str("prohibited"),
                    NextHopKind::NoRoute => return f.write_str("no route"),
                }
                if let Some(gateway) = spec.gateway {
                    write!(f, ", gateway {gateway}")?;
                }
                write!(f, ", MTU {}", spec.mtu)
            }
            RouteStep::TimeToLive { before, after } => write!(f, "  time to live {before} -> {after}"),
            RouteStep::Fragmented { mtu } => write!(f, "  cut into fragments of at most {mtu} bytes"),
            RouteStep::Error { error, source } => write!(f, "  ICMP error from {source}: {error}"),
            RouteStep::NoError(error) => write!(f, "  no ICMP error ({error}) is sent about this packet"),
            RouteStep::Sent { interface, frame } => {
                write!(f, "  -> interface {interface}, {} bytes: ", frame.len())?;
                frame.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            RouteStep::Punted { interface, class } => {
                write!(f, "  -> kernel, interface {interface}, class {}", class.name())
            }
            RouteStep::Tunnel { port } => write!(f, "  -> tunnels, underlay port {port}"),
            RouteStep::Waits { interface, neighbour } => write!(
                f,
                "  waits until the kernel has asked for {neighbour} at {interface}"
            ),
            RouteStep::Dropped(reason) => write!(f, "  dropped: {reason}. {}", reason.description()),
        }
    }
}

impl fmt::Display for IcmpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IcmpError::TimeExceeded => f.write_str("time exceeded"),
            IcmpError::TooBig { mtu } => write!(f, "packet too big, MTU {mtu}"),
            IcmpError::NoRoute => f.write_str("network unreachable"),
            IcmpError::HostUnreachable => f.write_str("host unreachable"),
            IcmpError::Prohibited => f.write_str("administratively prohibited"),
            IcmpError::BeyondScope => f.write_str("beyond scope of source address"),
            IcmpError::ParameterProblem { pointer } => write!(f, "parameter problem at byte {pointer}"),
        }
    }
}

pub(crate) trait Observer {
    /// Notes a step.
    fn note(&mut self, step: impl FnOnce() -> RouteStep);
}

/// The observer that ignores everything.
pub(crate) struct NoObserver;

impl Observer for NoObserver {
    #[inline(always)]
    fn note(&mut self, _: impl FnOnce() -> RouteStep) {}
}
