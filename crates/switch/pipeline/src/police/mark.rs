//! The marks that a policer sets in packets, and the color of a packet on arrival.

use millrace_types::Pcp;
use millrace_wire::{Depth, Dscp, L3, Layers, Packet, Tc, rewrite};

use super::Color;

/// The marks that a policer sets in a packet. A mark has no effect if the packet does not have its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// The code point of an IP packet (RFC 2474).
    pub dscp: Option<Dscp>,
    /// The priority of the outermost VLAN tag.
    pub pcp: Option<Pcp>,
    /// The traffic class of the outermost MPLS shim.
    pub mpls_tc: Option<Tc>,
}

impl Marks {
    /// Sets the marks in a packet.
    #[inline]
    pub fn set<P: Packet>(&self, packet: &mut P) {
        if *self != Marks::default() {
            self.set_some(packet);
        }
    }

    #[inline(never)]
    fn set_some<P: Packet>(&self, packet: &mut P) {
        let layers = Layers::of(packet, Depth::L3);
        let head = packet.head_mut();
        if let Some(dscp) = self.dscp {
            rewrite::ip_dscp(head, &layers, dscp);
        }
        if let Some(pcp) = self.pcp {
            rewrite::vlan_pcp(head, pcp);
        }
        if let Some(tc) = self.mpls_tc {
            rewrite::mpls_tc(head, &layers, tc);
        }
    }
}

/// Returns the color of a packet on arrival, by the drop precedence of its assured forwarding class. It is
/// green if the packet has no such class.
pub(super) fn color<P: Packet>(packet: &P) -> Color {
    let layers = Layers::of(packet, Depth::L3);
    match dscp(packet.head(), &layers).and_then(drop_precedence) {
        Some(2) => Color::Yellow,
        Some(3) => Color::Red,
        _ => Color::Green,
    }
}

/// Returns the code point of a packet whose IP header follows the Ethernet header and VLAN tags.
pub(crate) fn dscp(head: &[u8], layers: &Layers) -> Option<u8> {
    let [first, second] = *head.get(layers.l3_offset()..).and_then(<[u8]>::first_chunk)?;
    match layers.l3() {
        L3::Ipv4 => Some(second >> 2),
        // The traffic class begins in the middle of the first byte (RFC 8200, section 3).
        L3::Ipv6 => Some((first << 4 | second >> 4) >> 2),
        L3::None | L3::Arp | L3::Mpls | L3::Pbb => None,
    }
}

/// Returns the drop precedence, 1 to 3, of an assured forwarding class. Such a code point has three bits of
/// class (1 to 4), two bits of precedence (1 to 3), and a zero (RFC 2597, section 6).
pub(crate) fn drop_precedence(dscp: u8) -> Option<u8> {
    let (class, precedence, rest) = (dscp >> 3, dscp >> 1 & 3, dscp & 1);
    let is_assured = (1..=4).contains(&class) && precedence > 0 && rest == 0;
    is_assured.then_some(precedence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_types::Mac;
    use millrace_wire::{Builder, Frame};

    #[test]
    fn marks_are_set_in_the_headers_that_are_there() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let marks = Marks {
            dscp: Some(Dscp::from_low_bits(46)),
            pcp: Pcp::new(5).ok(),
            mpls_tc: Some(Tc::from_low_bits(3)),
        };
        let plain = Builder::ethernet(mac, mac)
            .ipv6([0; 16], [1; 16])
            .udp(1, 2)
            .payload(&[0; 9])
            .build();
        let mut ipv6 = Frame::new(&plain);
        marks.set(&mut ipv6);
        let layers = Layers::of(&ipv6, Depth::All);
        assert_eq!(dscp(ipv6.bytes(), &layers), Some(46));
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x00, 0x07]);
        let mut tagged = Frame::new(&tagged);
        marks.set(&mut tagged);
        assert_eq!(tagged.bytes()[14..16], [5 << 5, 7]);
        // The payload of an MPLS packet is not read.
        let mut shim = plain.clone();
        shim[12..14].copy_from_slice(&[0x88, 0x47]);
        shim[14..18].copy_from_slice(&[0, 1, 0x01, 64]);
        let mut shim = Frame::new(&shim);
        marks.set(&mut shim);
        assert_eq!(shim.bytes()[14..18], [0, 1, 0x01 | 3 << 1, 64]);
        let mut other = Frame::new(&[7; 60]);
        marks.set(&mut other);
        assert_eq!(other, Frame::new(&[7; 60]));
    }
}
