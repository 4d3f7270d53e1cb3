//! The checklist of an end in quarantine: what a frame shows about the set-up of the router that sent it.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use millrace_ix_model::{Prefix, Reason, link_local, reason};
use millrace_types::Mac;
use millrace_wire::{EtherType, IpProto, arp, icmpv4, icmpv6, ipv4, ipv6, udp};
use serde::Serialize;

/// A point of the checklist.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The source MAC address is registered for the end.
    Mac,
    /// The frame has the tags of the end, and no others.
    Tag,
    /// The policy of the LAN permits the EtherType.
    Ethertype,
    /// The router sends no spanning tree (IEEE 802.1D, or PVST).
    Stp,
    /// The router sends no LACP and no other slow protocol.
    Lacp,
    /// The router sends no LLDP.
    Lldp,
    /// The router sends no CDP, VTP, DTP or UDLD.
    Cdp,
    /// The router is neither server nor client of DHCP.
    Dhcp,
    /// The router sends no router advertisements or solicitations.
    Ra,
    /// The router sends no ICMP redirects.
    Redirect,
    /// ARP requests come from the end's own addresses and ask for addresses of the LAN.
    Arp,
    /// Neighbour discovery comes from the end's own addresses.
    Nd,
    /// The router answers ARP requests for its own addresses only.
    ProxyArp,
    /// The router sends neither broadcast nor multicast besides ARP and neighbour discovery.
    Multicast,
}

impl Check {
    /// All points, in the order of the checklist.
    pub const ALL: [Check; 14] = [
        Check::Mac,
        Check::Tag,
        Check::Ethertype,
        Check::Stp,
        Check::Lacp,
        Check::Lldp,
        Check::Cdp,
        Check::Dhcp,
        Check::Ra,
        Check::Redirect,
        Check::Arp,
        Check::Nd,
        Check::ProxyArp,
        Check::Multicast,
    ];

    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Mac => "mac",
            Check::Tag => "tag",
            Check::Ethertype => "ethertype",
            Check::Stp => "stp",
            Check::Lacp => "lacp",
            Check::Lldp => "lldp",
            Check::Cdp => "cdp",
            Check::Dhcp => "dhcp",
            Check::Ra => "ra",
            Check::Redirect => "redirect",
            Check::Arp => "arp",
            Check::Nd => "nd",
            Check::ProxyArp => "proxy_arp",
            Check::Multicast => "multicast",
        }
    }
}

/// A fault that a frame shows: the point of the checklist, and the words for the member.
pub(crate) type Fault = (Check, Reason);

/// The correct set-up of the router at an end.
#[derive(Clone, Debug)]
pub(crate) struct Expected<'a> {
    pub(crate) macs: BTreeSet<Mac>,
    pub(crate) ips: BTreeSet<IpAddr>,
    pub(crate) ethertypes: &'a BTreeSet<u16>,
    pub(crate) networks: &'a [Prefix],
}

/// The group address of spanning tree. All reserved addresses begin with its first five bytes (IEEE
/// 802.1Q-2018, table 8-1).
const STP: Mac = Mac([0x01, 0x80, 0xc2, 0, 0, 0]);
/// The group address of per-VLAN spanning tree of Cisco.
const PVST: Mac = Mac([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd]);
/// The group address of CDP, VTP, DTP and UDLD.
const CISCO: Mac = Mac([0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc]);
/// Slow protocols: LACP, marker, OAM (IEEE 802.3, annex 57A).
const SLOW: u16 = 0x8809;

/// ICMP types: redirect, router advertisement (RFC 792, RFC 1256).
const ICMP_REDIRECT: u8 = 5;
const ICMP_ROUTER_ADVERTISEMENT: u8 = 9;
/// ICMPv6 types (RFC 4861; RFC 3810 for the listener reports).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;
const LISTENER: [u8; 4] = [130, 131, 132, 143];

/// Judges a frame without the tags of its end. Returns `Ok(true)` if the frame shows a router that speaks IP or ARP as it should,
/// and `Ok(false)` if the frame shows nothing: it is too short, or its IP header is malformed.
pub(crate) fn judge(frame: &[u8], expected: &Expected<'_>) -> Result<bool, Fault> {
    let Some((header, body)) = frame.split_first_chunk::<14>() else {
        return Ok(false);
    };
    let mac = |at: usize| Mac(std::array::from_fn(|offset| header[at + offset]));
    let (dst, src) = (mac(0), mac(6));
    let ethertype = u16::from_be_bytes([header[12], header[13]]);
    link_protocols(dst, ethertype, body)?;
    if !expected.macs.contains(&src) {
        let reason = if expected.macs.is_empty() {
            reason::frame_source_none_registered(src)
        } else {
            reason::frame_source_unregistered(src)
        };
        return Err((Check::Mac, reason));
    }
    if !expected.ethertypes.contains(&ethertype) {
        let name = match ethertype {
            ..0x0600 => "LLC (IS-IS)".to_owned(),
            0x6002 => "DEC MOP (0x6002)".to_owned(),
            0x8847 | 0x8848 => "MPLS".to_owned(),
            0x8863 | 0x8864 => "PPPoE".to_owned(),
            0x888e => "IEEE 802.1X (0x888e)".to_owned(),
            0x9000 => "loopback (0x9000)".to_owned(),
            0x8100 | 0x88a8 => {
                let ethertype = format_args!("0x{ethertype:04x}");
                return Err((Check::Tag, reason::frame_tag_more(ethertype)));
            }
            other => format!("EtherType 0x{other:04x}"),
        };
        return Err((Check::Ethertype, reason::frame_ethertype(name)));
    }
    match EtherType(ethertype) {
        EtherType::ARP => judge_arp(src, body, expected).map(|()| true),
        EtherType::IPV4 => judge_ipv4(dst, body),
        EtherType::IPV6 => judge_ipv6(body, expected),
        _ => Ok(true),
    }
}

/// Returns the fault of a frame without tags that belongs to a protocol between bridges.
pub(crate) fn link_fault(frame: &[u8]) -> Option<Fault> {
    let (header, body) = frame.split_first_chunk::<14>()?;
    let dst = Mac(std::array::from_fn(|at| header[at]));
    link_protocols(dst, u16::from_be_bytes([header[12], header[13]]), body).err()
}

/// Returns a fault if the frame belongs to a protocol between bridges.
fn link_protocols(dst: Mac, ethertype: u16, body: &[u8]) -> Result<(), Fault> {
    match dst {
        STP => Err((Check::Stp, reason::frame_bpdu("STP"))),
        PVST => Err((Check::Stp, reason::frame_bpdu("PVST"))),
        CISCO => {
            // After LLC and the organisation, SNAP names the protocol.
            let name = match body.get(6..8) {
                Some([0x20, 0x00]) => "CDP",
                Some([0x20, 0x03]) => "VTP",
                Some([0x20, 0x04]) => "DTP",
                Some([0x01, 0x11]) => "UDLD",
                _ => "CDP/VTP/DTP/UDLD",
            };
            Err((Check::Cdp, reason::frame_protocol(name)))
        }
        _ if ethertype == SLOW => {
            let name = match body.first() {
                Some(1) => "LACP",
                Some(3) => "Ethernet OAM (802.3ah)",
                _ => "IEEE 802.3 57A",
            };
            Err((Check::Lacp, reason::frame_slow_protocol(name)))
        }
        _ if ethertype == EtherType::LLDP.0 => Err((Check::Lldp, reason::frame_protocol("LLDP"))),
        Mac([0x01, 0x80, 0xc2, 0, 0, low]) if low < 0x10 => {
            Err((Check::Ethertype, reason::frame_reserved(dst)))
        }
        _ => Ok(()),
    }
}

fn judge_arp(src: Mac, body: &[u8], expected: &Expected<'_>) -> Result<(), Fault> {
    let Ok(arp) = arp::View::new(body) else {
        return Err((Check::Arp, reason::frame_malformed("ARP")));
    };
    let (sender, target) = (arp.spa(), arp.tpa());
    if arp.sha() != src {
        return Err((Check::Arp, reason::arp_sender_differs(arp.sha(), src)));
    }
    let is_own = expected.ips.contains(&IpAddr::V4(sender));
    if arp.op() == arp::REPLY && !is_own {
        return Err((Check::ProxyArp, reason::arp_proxy(sender)));
    }
    if !is_own && sender != Ipv4Addr::UNSPECIFIED {
        return Err((Check::Arp, reason::arp_unregistered(sender)));
    }
    let is_inside = |address: Ipv4Addr| {
        let mut networks = expected.networks.iter();
        networks.any(|network| network.contains(IpAddr::V4(address)))
    };
    if arp.op() == arp::REQUEST && !is_inside(target) {
        return Err((Check::Arp, reason::arp_outside(target)));
    }
    Ok(())
}

fn judge_ipv4(dst: Mac, body: &[u8]) -> Result<bool, Fault> {
    let Ok(ip) = ipv4::View::new(body) else {
        return Ok(false);
    };
    if ip.proto() == IpProto::UDP
        && let Ok(udp) = udp::View::new(ip.payload())
        && let Some(reason) = match udp.dst() {
            67 => Some(reason::dhcp_client("DHCP")),
            68 => Some(reason::dhcp_server("DHCP")),
            _ => None,
        }
    {
        return Err((Check::Dhcp, reason));
    }
    if ip.proto() == IpProto::ICMPV4
        && let Ok(icmp) = icmpv4::View::new(ip.payload())
    {
        match icmp.kind() {
            ICMP_REDIRECT => {
                return Err((Check::Redirect, reason::redirects("ICMP")));
            }
            ICMP_ROUTER_ADVERTISEMENT => {
                return Err((Check::Ra, reason::advertisements("ICMP")));
            }
            _ => {}
        }
    }
    let to = ip.dst();
    if to.is_multicast() || to.is_broadcast() || dst.is_multicast() {
        let name = match (ip.proto().0, to.octets()) {
            (89, _) => "OSPF",
            (88, _) => "EIGRP",
            (103, _) => "PIM",
            (112, _) => "VRRP",
            (2, _) => "IGMP",
            (_, [224, 0, 0, 9]) => "RIP",
            (_, [224, 0, 0, 2 | 102]) => "HSRP",
            (_, [224, 0, 0, 251]) => "mDNS",
            (_, [224, 0, 0, 252]) => "LLMNR",
            _ if to.is_multicast() => "multicast",
            _ => "broadcast",
        };
        return Err((Check::Multicast, reason::multicast(name, to)));
    }
    Ok(true)
}

fn judge_ipv6(body: &[u8], expected: &Expected<'_>) -> Result<bool, Fault> {
    let Ok(ip) = ipv6::View::new(body) else {
        return Ok(false);
    };
    let walk = ip.walk();
    let payload = ip.payload().get(walk.size..).unwrap_or_default();
    if walk.proto == IpProto::ICMPV6
        && let Ok(icmp) = icmpv6::View::new(payload)
    {
        return judge_icmpv6(&ip, &icmp, expected).map(|()| true);
    }
    if walk.proto == IpProto::UDP
        && let Ok(udp) = udp::View::new(payload)
        && let Some(reason) = match udp.dst() {
            547 => Some(reason::dhcp_client("DHCPv6")),
            546 => Some(reason::dhcp_server("DHCPv6")),
            _ => None,
        }
    {
        return Err((Check::Dhcp, reason));
    }
    if ip.dst().is_multicast() {
        let name = match (walk.proto.0, ip.dst().segments()[7]) {
            (89, _) => "OSPFv3",
            (103, _) => "PIM",
            (112, _) => "VRRP",
            (_, 0x09) => "RIPng",
            (_, 0xfb) => "mDNS",
            _ => "multicast",
        };
        return Err((Check::Multicast, reason::multicast(name, ip.dst())));
    }
    Ok(true)
}

fn judge_icmpv6(ip: &ipv6::View<'_>, icmp: &icmpv6::View<'_>, expected: &Expected<'_>) -> Result<(), Fault> {
    let is_own = |address: Ipv6Addr| {
        expected.ips.contains(&IpAddr::V6(address))
            || expected.macs.iter().any(|mac| link_local(*mac) == address)
    };
    match icmp.kind() {
        ROUTER_ADVERTISEMENT => Err((Check::Ra, reason::advertisements("IPv6"))),
        ROUTER_SOLICITATION => Err((Check::Ra, reason::solicitations())),
        REDIRECT => Err((Check::Redirect, reason::redirects("IPv6"))),
        icmpv6::NEIGHBOR_SOLICIT if !ip.src().is_unspecified() && !is_own(ip.src()) => {
            Err((Check::Nd, reason::nd_unregistered_source(ip.src())))
        }
        icmpv6::NEIGHBOR_ADVERT => match icmp.neighbor() {
            Ok(neighbour) if !is_own(neighbour.target()) => {
                Err((Check::Nd, reason::nd_unregistered_target(neighbour.target())))
            }
            Ok(_) => Ok(()),
            Err(_) => Err((Check::Nd, reason::frame_malformed("ND"))),
        },
        // Every router reports the groups of its addresses; the fabric drops the reports.
        kind if LISTENER.contains(&kind) => Ok(()),
        _ => Ok(()),
    }
}
