//! The frames that a peering LAN must pass: docs/exchange.md, "Addresses of a peering LAN". This is written from the
//! documentation and the RFCs, and shares nothing with the planner.

use std::collections::BTreeSet;

use millrace_flow::Field;
use millrace_types::Mac;

use crate::register::End;
use crate::space::{Cube, Space, Var};

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The bit of an Ethernet address that marks a group address.
const GROUP: u64 = 0x0100_0000_0000;
/// ICMPv6 types (RFC 4861, section 4): router solicitation, router advertisement, redirect.
const REFUSED_TYPES: [u8; 3] = [133, 134, 137];
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// UDP ports of DHCP (RFC 2131) and DHCPv6 (RFC 8415).
const DHCP: [u16; 2] = [67, 68];
const DHCPV6: [u16; 2] = [546, 547];

pub(crate) const fn field(field: Field) -> Var {
    Var::Field(field)
}

/// Returns the frames that an end may send into the LAN, whatever their destination.
pub(crate) fn admitted(end: &End, ethertypes: &BTreeSet<u16>) -> Vec<Space> {
    let mut spaces = Vec::new();
    for mac in &end.macs {
        let from_mac = || Cube::any().with(field(Field::EthSrc), mac.to_u64());
        let of_type = |ethertype: u16| from_mac().with(field(Field::EthType), ethertype);
        for ethertype in ethertypes.iter().filter(|ethertype| **ethertype != ARP) {
            spaces.push(Space {
                cube: of_type(*ethertype),
                without: refused(*ethertype),
            });
        }
        if ethertypes.contains(&ARP) {
            for address in &end.v4 {
                let arp = of_type(ARP)
                    .with(field(Field::ArpSha), mac.to_u64())
                    .with(field(Field::ArpSpa), address.to_bits());
                spaces.push(Space::of(arp));
            }
        }
        if ethertypes.contains(&IPV6) {
            let message = |kind: u8| {
                let icmpv6 = of_type(IPV6).with(field(Field::IpProto), ICMPV6);
                icmpv6.with(field(Field::Icmpv6Type), kind)
            };
            for (address, _) in &end.v6 {
                let asks = message(SOLICITATION).with(field(Field::Ipv6Src), address.to_bits());
                let answers = message(ADVERTISEMENT).with(field(Field::Ipv6NdTarget), address.to_bits());
                for (cube, option) in [(asks, Field::Ipv6NdSll), (answers, Field::Ipv6NdTll)] {
                    spaces.push(Space::of(cube.clone().with(field(option), mac.to_u64())));
                    // Only unicast messages may omit the option (RFC 4861, sections 4.3 and 7.2.4).
                    let without = cube.with(field(option), 0u64);
                    spaces.push(Space::of(without.masked(field(Field::EthDst), 0u64, GROUP)));
                }
            }
        }
    }
    spaces
}

/// Returns the frames of an EtherType that no member may send, and those that count only with the member's own addresses.
fn refused(ethertype: u16) -> Vec<Cube> {
    let of_type = || Cube::any().with(field(Field::EthType), ethertype);
    let udp = |port: u16| {
        of_type()
            .with(field(Field::IpProto), UDP)
            .with(field(Field::UdpDst), port)
    };
    match ethertype {
        IPV4 => DHCP.map(udp).to_vec(),
        IPV6 => {
            let icmpv6 = |kind: u8| {
                let icmpv6 = of_type().with(field(Field::IpProto), ICMPV6);
                icmpv6.with(field(Field::Icmpv6Type), kind)
            };
            let discovery = REFUSED_TYPES
                .into_iter()
                .chain([SOLICITATION, ADVERTISEMENT])
                .map(icmpv6);
            discovery.chain(DHCPV6.map(udp)).collect()
        }
        _ => Vec::new(),
    }
}

/// A set of frames that belong to an end by their destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Destination {
    pub(crate) cube: Cube,
    /// The address that the exchange writes as destination.
    pub(crate) written: Option<Mac>,
}

/// Returns the frames that go to an end: those to its MAC addresses, and requests for its IP addresses.
pub(crate) fn destinations(end: &End) -> Vec<Destination> {
    let mut all = Vec::new();
    for mac in &end.macs {
        all.push(Destination {
            cube: Cube::any().with(field(Field::EthDst), mac.to_u64()),
            written: None,
        });
    }
    let Some(newest) = end.macs.last() else {
        return all;
    };
    for address in &end.v4 {
        let request = Cube::any()
            .with(field(Field::EthDst), Mac::BROADCAST.to_u64())
            .with(field(Field::EthType), ARP)
            .with(field(Field::ArpOp), 1u8)
            .with(field(Field::ArpTpa), address.to_bits());
        all.push(Destination {
            cube: request,
            written: Some(*newest),
        });
    }
    for (address, of_mac) in &end.v6 {
        let [.., x, y, z] = address.octets();
        // The group of solicited nodes (RFC 4291, section 2.7.1; RFC 2464, section 7).
        let group = Mac([0x33, 0x33, 0xff, x, y, z]);
        let solicitation = Cube::any()
            .with(field(Field::EthDst), group.to_u64())
            .with(field(Field::EthType), IPV6)
            .with(field(Field::IpProto), ICMPV6)
            .with(field(Field::Icmpv6Type), SOLICITATION)
            .with(field(Field::Ipv6NdTarget), address.to_bits());
        all.push(Destination {
            cube: solicitation,
            written: Some(of_mac.unwrap_or(*newest)),
        });
    }
    all
}
