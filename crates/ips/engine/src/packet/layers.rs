//! The headers of a frame by name, for the statistics of a capture. The names are those of the decoder's counters in EVE.

use core::net::IpAddr;

use millrace_wire::IpProto;
use millrace_wire::tcp::flags;

use super::decode::DEPTH;
use super::tunnel::{self, Tunnels};
use super::{Context, LinkType, Packet, find_ip_header};

/// Largest number of headers between the link layer and IP that are named.
const HEADERS: usize = 16;

/// A header of a frame, or a fact about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// A header, by the name of the decoder's counter.
    Header(&'static str),
    /// A fragment: of IPv4, or of IPv6.
    Fragment { is_v6: bool },
    /// The control bits of a TCP segment.
    Tcp(u16),
    /// The frame, or a packet in a tunnel, is not decoded.
    Invalid,
    /// The frame has another packet in more tunnels than are decoded.
    TooMany,
}

/// Calls `note` for each header of a frame, from the outermost on. Fragments are not reassembled.
pub fn layers(frame: &[u8], link: LinkType, note: &mut dyn FnMut(Layer)) {
    link_layers(frame, link, note);
    let Ok(mut location) = find_ip_header(link, frame) else {
        return;
    };
    let mut outer = None;
    for tunnel_depth in 0..DEPTH {
        let context = Context::of_record(tunnel_depth);
        let packet = match Packet::decode(frame, location, context) {
            Ok(packet) => packet,
            Err(_) => return note(Layer::Invalid),
        };
        let is_v6 = matches!(packet.src, IpAddr::V6(_));
        note(Layer::Header(if is_v6 { "ipv6" } else { "ipv4" }));
        if let Some(name) = outer.and_then(|outer_protocol| inside_name(outer_protocol, is_v6)) {
            note(Layer::Header(name));
        }
        if packet.is_fragment {
            return note(Layer::Fragment { is_v6 });
        }
        if let Some(name) = transport_name(packet.protocol) {
            note(Layer::Header(name));
        }
        if let Some(tcp) = &packet.tcp {
            let counted = flags::SYN | flags::ACK | flags::RST | flags::URG;
            note(Layer::Tcp(tcp.flags & counted));
        }
        let Some(inside) = tunnel::inside(frame, &packet, &Tunnels::default()) else {
            return;
        };
        if let Some(name) = tunnel_name(&packet) {
            note(Layer::Header(name));
        }
        outer = Some((packet.protocol, is_v6));
        location = inside;
    }
    note(Layer::TooMany);
}

/// Returns the counter of a packet of IP in IP, by the protocol of the outer packet and the versions of both.
fn inside_name((protocol, is_outer_v6): (u8, bool), is_v6: bool) -> Option<&'static str> {
    match (protocol, is_outer_v6, is_v6) {
        (4, false, false) => Some("ipv4_in_ipv4"),
        (4, true, false) => Some("ipv4_in_ipv6"),
        (41, false, true) => Some("ipv6_in_ipv4"),
        (41, true, true) => Some("ipv6_in_ipv6"),
        _ => None,
    }
}

fn transport_name(protocol: u8) -> Option<&'static str> {
    Some(match IpProto(protocol) {
        IpProto::TCP => "tcp",
        IpProto::UDP => "udp",
        IpProto::ICMPV4 => "icmpv4",
        IpProto::ICMPV6 => "icmpv6",
        IpProto(132) => "sctp",
        IpProto(50) => "esp",
        IpProto(47) => "gre",
        IpProto(2) => "igmp",
        _ => return None,
    })
}

/// Returns the counter of a tunnel over UDP, by its port.
fn tunnel_name(packet: &Packet<'_>) -> Option<&'static str> {
    let (source, destination) = packet.ports?;
    let known = Tunnels::default();
    match () {
        () if destination == known.vxlan => Some("vxlan"),
        () if [source, destination].contains(&known.geneve) => Some("geneve"),
        () if [source, destination].contains(&known.teredo) => Some("teredo"),
        () => None,
    }
}

/// Names the headers before the IP header.
fn link_layers(frame: &[u8], link: LinkType, note: &mut dyn FnMut(Layer)) {
    let header = |name| Layer::Header(name);
    match link.0 {
        LinkType::ETHERNET => {
            note(header("ethernet"));
            match frame.len() {
                0..14 => note(Layer::Invalid),
                _ => ether_types(frame, 12, note),
            }
        }
        LinkType::LINUX_SLL => {
            note(header("sll"));
            ether_types(frame, 14, note);
        }
        LinkType::LINUX_SLL2 => {
            note(header("sll2"));
            ether_types(frame, 0, note);
        }
        LinkType::NULL | LinkType::LOOP => note(header("null")),
        LinkType::PPP | LinkType::PPP_ETHER => note(header("ppp")),
        LinkType::C_HDLC => note(header("chdlc")),
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 | 12 | 14 => note(header("raw")),
        _ => {}
    }
}

/// Names the headers from the EtherType at an offset on.
fn ether_types(frame: &[u8], mut at: usize, note: &mut dyn FnMut(Layer)) {
    let mut tags = 0;
    for _ in 0..HEADERS {
        let Some([high, low]) = frame.get(at..).and_then(<[u8]>::first_chunk) else {
            return note(Layer::Invalid);
        };
        let name = match u16::from_be_bytes([*high, *low]) {
            0x8100 | 0x88a8 | 0x9100 => {
                tags += 1;
                at += 4;
                match tags {
                    1 => "vlan",
                    2 => "vlan_qinq",
                    _ => "vlan_qinqinq",
                }
            }
            0x8926 => {
                at += 6;
                "vntag"
            }
            0x893f => {
                at += 8;
                "etag"
            }
            0x8847 | 0x8848 => return note(Layer::Header("mpls")),
            0x8863 | 0x8864 => return note(Layer::Header("pppoe")),
            0x88e7 => return note(Layer::Header("ieee8021ah")),
            0x894f => return note(Layer::Header("nsh")),
            0x0806 => return note(Layer::Header("arp")),
            0x0800 | 0x86dd | 0x6558 | 0x8903 => return,
            // A length of IEEE 802.3.
            0..0x600 => return,
            _ => return note(Layer::Header("unknown_ethertype")),
        };
        note(Layer::Header(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(link: u32, frame: &[u8]) -> Vec<Layer> {
        let mut found = Vec::new();
        layers(frame, LinkType(link), &mut |layer| found.push(layer));
        found
    }

    #[test]
    fn each_header_has_its_counter() {
        let udp = [0, 53, 0, 53, 0, 8, 0, 0];
        let ip = [
            &[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
            &udp,
        ]
        .concat();
        let tagged = [&[2; 12][..], &[0x81, 0, 0, 5, 0x81, 0, 0, 6, 0x08, 0], &ip].concat();
        let expected = ["ethernet", "vlan", "vlan_qinq", "ipv4", "udp"].map(Layer::Header);
        assert_eq!(names(LinkType::ETHERNET, &tagged), expected);
        let outer = [
            &[0x45, 0, 0, 48, 0, 0, 0, 0, 64, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
            &ip,
        ]
        .concat();
        let expected = ["raw", "ipv4", "ipv4", "ipv4_in_ipv4", "udp"].map(Layer::Header);
        assert_eq!(names(LinkType::RAW, &outer), expected);
        let arp = [&[2; 12][..], &[0x08, 0x06]].concat();
        assert_eq!(
            names(LinkType::ETHERNET, &arp),
            ["ethernet", "arp"].map(Layer::Header)
        );
        assert_eq!(
            names(LinkType::ETHERNET, &[2; 9]),
            [Layer::Header("ethernet"), Layer::Invalid]
        );
    }

    #[test]
    fn a_packet_in_too_many_tunnels_is_noted() {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 99, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        for depth in 1..=DEPTH {
            let size = 20 * (u16::from(depth) + 1);
            let mut outer = packet[..20].to_vec();
            outer[2..4].copy_from_slice(&size.to_be_bytes());
            outer[9] = 4;
            outer.extend_from_slice(&packet);
            packet = outer;
            let found = names(LinkType::RAW, &packet);
            assert_eq!(found.contains(&Layer::TooMany), depth == DEPTH, "{depth}");
        }
    }

    #[test]
    fn a_fragment_and_the_bits_of_tcp_are_noted() {
        let fragment = [
            0x45, 0, 0, 20, 0, 0, 0x20, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        let expected = [
            Layer::Header("raw"),
            Layer::Header("ipv4"),
            Layer::Fragment { is_v6: false },
        ];
        assert_eq!(names(LinkType::RAW, &fragment), expected);
        let syn = [0, 1, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0];
        let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let found = names(LinkType::RAW, &[&ip[..], &syn].concat());
        assert_eq!(found[2..], [Layer::Header("tcp"), Layer::Tcp(flags::SYN)]);
    }
}
