//! Messages of routes: `struct rtmsg` and its attributes.
//!
//! ```text
//!  0        1         2         3     4       5          6       7      8       12
//!  | family | dst len | src len | tos | table | protocol | scope | type | flags | attributes...
//! ```
//! The next hop of a route stands in the attributes of the route, in `RTA_MULTIPATH`, or in the object that `RTA_NH_ID`
//! names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::attributes::{Attribute, Attributes, u16_at, u32_at};
use super::error::DecodeError;
use super::numbers::{family, rta, rtax, rtnh_flag};

const WHAT: &str = "rtmsg";
const HEADER_SIZE: usize = 12;
const MULTIPATH: &str = "rtnexthop";
/// Size of `struct rtnexthop`: length, flags, hops, interface.
const HOP_SIZE: usize = 8;
/// `RTM_F_CLONED`: an entry of a cache, no route of a table.
const CLONED: u32 = 0x200;

/// A route of IPv4 or IPv6.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route<'a> {
    /// The prefix: the address, and 0 to 32 or 0 to 128 bits.
    pub destination: IpAddr,
    pub prefix_len: u8,
    /// Length of the source prefix of an IPv6 route by source, in bits; 0 of all other routes.
    pub source_len: u8,
    /// The type of service that packets must have to take an IPv4 route; 0 for all packets.
    pub tos: u8,
    pub table: u32,
    /// The source of the route, `RTPROT_*`: 2 the kernel, 3 boot, 4 `ip route`, 12 BIRD, 186 to 196 FRR.
    pub protocol: u8,
    /// The type, one of [`super::rtn`].
    pub kind: u8,
    /// Flags of [`super::rtnh_flag`] and `RTM_F_*`.
    pub flags: u32,
    /// The metric: of two routes to a prefix, that with the lower one counts.
    pub priority: u32,
    /// The source address of packets that the kernel sends by the route.
    pub preferred_source: Option<IpAddr>,
    /// The number of the nexthop object; 0 if the route has next hops of its own.
    pub nexthop_id: u32,
    /// The MTU metric in bytes; 0 if the MTU of the interface counts.
    pub mtu: u32,
    hops: Hops<'a>,
}

/// A next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The number of the interface; 0 if none is named.
    pub interface: u32,
    /// The gateway; an IPv4 route may have one of IPv6.
    pub gateway: Option<IpAddr>,
    /// 1 to 256.
    pub weight: u16,
    /// Flags of [`super::rtnh_flag`].
    pub flags: u32,
    /// The encapsulation that the next hop demands (`LWTUNNEL_ENCAP_*`: 1 MPLS, 5 SRv6); 0 for none.
    pub encapsulation: u16,
}

impl Hop {
    const NONE: Hop = Hop {
        interface: 0,
        gateway: None,
        weight: 1,
        flags: 0,
        encapsulation: 0,
    };

    /// Returns true if the next hop takes no packets: its link is down, or lost its carrier.
    pub fn is_dead(&self) -> bool {
        self.flags & (rtnh_flag::DEAD | rtnh_flag::LINKDOWN) != 0
    }

    /// Returns true if the gateway is on the link, whatever the addresses of the interface are.
    pub fn is_on_link(&self) -> bool {
        self.flags & rtnh_flag::ONLINK != 0
    }

    /// Takes the value of an attribute that routes and members of `RTA_MULTIPATH` have in common.
    fn set(&mut self, attribute: &Attribute<'_>) -> Result<(), DecodeError> {
        match attribute.kind {
            rta::OIF => self.interface = attribute.u32()?,
            rta::GATEWAY => self.gateway = Some(attribute.address()?),
            rta::VIA => self.gateway = Some(attribute.via()?),
            rta::ENCAP_TYPE => self.encapsulation = attribute.u16()?,
            _ => {}
        }
        Ok(())
    }
}

/// The next hops that a route contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hops<'a>(Source<'a>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Source<'a> {
    Single(Option<Hop>),
    /// The value of `RTA_MULTIPATH`.
    Multipath(&'a [u8]),
}

impl<'a> Route<'a> {
    /// Decodes the body of an `RTM_NEWROUTE` or `RTM_DELROUTE` of IPv4 or IPv6.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if a length is wrong.
    pub fn decode(body: &'a [u8]) -> Result<Route<'a>, DecodeError> {
        let (fixed, attributes) = Attributes::after(WHAT, body, HEADER_SIZE)?;
        let &[
            family,
            prefix_len,
            source_len,
            tos,
            table,
            protocol,
            _scope,
            kind,
            ..,
        ] = fixed
        else {
            return Err(DecodeError::Header {
                what: WHAT,
                expected: HEADER_SIZE,
                found: fixed.len(),
            });
        };
        let (any, bits): (IpAddr, u8) = if family == family::INET {
            (Ipv4Addr::UNSPECIFIED.into(), 32)
        } else {
            (Ipv6Addr::UNSPECIFIED.into(), 128)
        };
        if prefix_len > bits || source_len > bits {
            return Err(DecodeError::Prefix {
                what: WHAT,
                length: prefix_len.max(source_len),
                family,
            });
        }
        let flags = u32_at(fixed, 8).unwrap_or_default();
        let mut route = Route {
            destination: any,
            prefix_len,
            source_len,
            tos,
            table: u32::from(table),
            protocol,
            kind,
            flags,
            priority: 0,
            preferred_source: None,
            nexthop_id: 0,
            mtu: 0,
            hops: Hops(Source::Single(None)),
        };
        let mut hop = Hop { flags, ..Hop::NONE };
        let mut has_destination = false;
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                rta::DST => {
                    route.destination = attribute.address()?;
                    has_destination = route.destination.is_ipv4() == any.is_ipv4();
                    if !has_destination {
                        return Err(DecodeError::Size {
                            what: WHAT,
                            attribute: rta::DST,
                            expected: "the size of an address of the route's family",
                            found: attribute.value.len(),
                        });
                    }
                }
                rta::TABLE => route.table = attribute.u32()?,
                rta::PRIORITY => route.priority = attribute.u32()?,
                rta::PREFSRC => route.preferred_source = Some(attribute.address()?),
                rta::NH_ID => route.nexthop_id = attribute.u32()?,
                rta::METRICS => route.mtu = mtu(&attribute)?,
                rta::MULTIPATH => {
                    // A value that passes this check gives no error when the next hops are read.
                    each_hop(attribute.value).try_for_each(|hop| hop.map(|_| ()))?;
                    route.hops = Hops(Source::Multipath(attribute.value));
                }
                _ => hop.set(&attribute)?,
            }
        }
        if prefix_len > 0 && !has_destination {
            return Err(DecodeError::Missing {
                what: WHAT,
                attribute: "RTA_DST",
            });
        }
        if route.hops.0 == Source::Single(None) && (hop.interface != 0 || hop.gateway.is_some()) {
            route.hops = Hops(Source::Single(Some(hop)));
        }
        Ok(route)
    }

    /// Returns the next hops that the route contains: none if it has no packets forwarded, or names a nexthop object.
    pub fn hops(&self) -> Hops<'a> {
        self.hops.clone()
    }

    /// Returns true if the message shows an entry of a cache, which is no route.
    pub fn is_cached(&self) -> bool {
        self.flags & CLONED != 0
    }
}

impl Hops<'_> {
    /// Returns true if the route has next hops of its own with weights, one or more (`RTA_MULTIPATH`).
    pub fn is_multipath(&self) -> bool {
        matches!(self.0, Source::Multipath(_))
    }
}

impl Iterator for Hops<'_> {
    type Item = Hop;

    fn next(&mut self) -> Option<Hop> {
        match &mut self.0 {
            Source::Single(hop) => hop.take(),
            Source::Multipath(bytes) => {
                let mut hops = each_hop(bytes);
                let hop = hops.next()?.ok();
                *bytes = hops.rest;
                hop
            }
        }
    }
}

/// The members of `RTA_MULTIPATH`. The iterator ends after the first error.
struct EachHop<'a> {
    rest: &'a [u8],
}

fn each_hop(bytes: &[u8]) -> EachHop<'_> {
    EachHop { rest: bytes }
}

impl EachHop<'_> {
    fn take(&mut self) -> Result<Hop, DecodeError> {
        let bytes = core::mem::take(&mut self.rest);
        let wrong = |length| DecodeError::Length {
            what: MULTIPATH,
            length,
            available: bytes.len(),
        };
        let (Some(length), Some(interface)) = (u16_at(bytes, 0), u32_at(bytes, 4)) else {
            return Err(wrong(HOP_SIZE));
        };
        let length = usize::from(length);
        let (Some(&[flags, hops]), Some(attributes)) = (bytes.get(2..4), bytes.get(HOP_SIZE..length)) else {
            return Err(wrong(length));
        };
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let mut hop = Hop {
            interface,
            weight: u16::from(hops) + 1,
            flags: u32::from(flags),
            ..Hop::NONE
        };
        for attribute in Attributes::new(MULTIPATH, attributes) {
            hop.set(&attribute?)?;
        }
        Ok(hop)
    }
}

impl Iterator for EachHop<'_> {
    type Item = Result<Hop, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.take())
    }
}

fn mtu(metrics: &Attribute<'_>) -> Result<u32, DecodeError> {
    let mut mtu = 0;
    for metric in metrics.nested() {
        let metric = metric?;
        if metric.kind == rtax::MTU {
            mtu = metric.u32()?;
        }
    }
    Ok(mtu)
}
