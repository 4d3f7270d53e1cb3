//! Extraction of the flow key from a parsed packet.
//!
//! The parser returns the offsets of headers that are complete; this module copies their fields. The parse depth, and
//! so the number of fields in the key, depends on the fields that some rule matches ([`depth_for`]).

use millrace_wire::tcp::flags;
use millrace_wire::{Depth, Fragment, L3, L4, Layers};

use crate::field::{Field, FieldSet};
use crate::key::{FlowKey, Layer};

/// Offsets of fields in bytes from the beginning of their header.
mod offset {
    /// RFC 791, section 3.1.
    pub(super) const IPV4_TRAFFIC_CLASS: usize = 1;
    pub(super) const IPV4_TTL: usize = 8;
    pub(super) const IPV4_SRC: usize = 12;
    pub(super) const IPV4_END: usize = 20;
    /// RFC 8200, section 3.
    pub(super) const IPV6_HOP_LIMIT: usize = 7;
    pub(super) const IPV6_SRC: usize = 8;
    pub(super) const IPV6_DST: usize = 24;
    /// RFC 826, for IPv4 over Ethernet.
    pub(super) const ARP_OP: usize = 6;
    pub(super) const ARP_SHA: usize = 8;
    pub(super) const ARP_SPA: usize = 14;
    pub(super) const ARP_THA: usize = 18;
    pub(super) const ARP_TPA: usize = 24;
    /// RFC 9293, section 3.1: the data offset, followed by the control bits.
    pub(super) const TCP_FLAGS: usize = 12;
}

/// Returns the parse depth that [`FlowKey::extract`] needs for these fields; `None` if none of them is in the packet's
/// bytes (ports, metadata, tunnel).
pub const fn depth_for(fields: FieldSet) -> Option<Depth> {
    let mut depth = None;
    let mut i = 0;
    while i < Field::ALL.len() {
        let field = Field::ALL[i];
        i += 1;
        if !fields.contains(field) {
            continue;
        }
        let needed = match field.layer() {
            // TCP flags are zero without the TCP header, so the field's layer does not determine the depth.
            _ if matches!(field, Field::TcpFlags) => Depth::L4,
            None if field.is_pipeline_field() => continue,
            None => Depth::L2,
            Some(Layer::Ip | Layer::Arp | Layer::Mpls | Layer::Pbb) => Depth::L3,
            Some(Layer::L4) => Depth::L4,
            Some(Layer::NdTarget) => Depth::All,
        };
        depth = match depth {
            Some(deep) if deep as u8 >= needed as u8 => depth,
            _ => Some(needed),
        };
    }
    depth
}

impl Field {
    /// Returns true if the field is metadata and not in the packet's bytes: ports, table metadata and tunnel.
    #[inline]
    pub const fn is_pipeline_field(self) -> bool {
        matches!(
            self,
            Field::InPort | Field::InPhyPort | Field::Metadata | Field::TunnelId
        )
    }
}

#[inline(always)]
fn be<const N: usize>(head: &[u8], at: usize) -> u64 {
    let bytes: Option<&[u8; N]> = head.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| {
        bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    })
}

#[inline]
fn be16(head: &[u8], at: usize) -> u64 {
    be::<2>(head, at)
}

#[inline]
fn be32(head: &[u8], at: usize) -> u64 {
    be::<4>(head, at)
}

#[inline]
fn be48(head: &[u8], at: usize) -> u64 {
    be::<6>(head, at)
}

impl FlowKey {
    /// Writes the fields of the headers that `layers` found in `head`. Fields that are not in the packet's bytes
    /// (ports, metadata, tunnel) keep their values; every other field is overwritten, with zero if the packet does not
    /// have it.
    ///
    /// `layers` must be the result of a parse of `head`.
    #[inline(always)]
    pub fn extract(&mut self, head: &[u8], layers: &Layers) {
        let words = self.words_mut();
        words[3..].fill(0);
        if !layers.has_ethernet() {
            return;
        }
        words[3] = be48(head, 0) << 16;
        words[4] = be48(head, 6) << 16;
        words[5] = layers.ether_type().0.into();
        if layers.vlan_count() > 0 {
            let tci = be16(head, Layers::VLAN_OFFSET);
            words[3] |= tci & 0xfff | 0x1000;
            words[7] = tci >> 13 << 56;
        }
        let at = layers.l3_offset();
        match layers.l3() {
            L3::None => {}
            L3::Ipv4 => self.extract_ipv4(head, at, layers),
            L3::Ipv6 => self.extract_ipv6(head, at, layers),
            L3::Arp => self.extract_arp(head, at),
            L3::Mpls => {
                let entry = be32(head, at);
                words[16] = entry >> 12 << 44;
                words[7] |= (entry >> 9 & 7) << 44 | (entry >> 8 & 1) << 47;
                self.add_layer(Layer::Mpls);
            }
            L3::Pbb => {
                words[16] = (be32(head, at) & 0xff_ffff) << 20;
                self.add_layer(Layer::Pbb);
            }
        }
    }

    #[inline(always)]
    fn extract_ipv4(&mut self, head: &[u8], at: usize, layers: &Layers) {
        // Both fields share one bounds check, because this is the hot path.
        let header: Option<&[u8; offset::IPV4_END]> = head.get(at..).and_then(<[u8]>::first_chunk);
        let Some(header) = header else { return };
        let words = self.words_mut();
        words[6] = be::<8>(header, offset::IPV4_SRC);
        let class = u64::from(header[offset::IPV4_TRAFFIC_CLASS]);
        words[7] |=
            traffic_class(class) | u64::from(header[offset::IPV4_TTL]) << 32 | fragment(layers.fragment());
        words[5] |= u64::from(layers.ip_proto().0) << 24;
        self.add_layer(Layer::Ip);
        self.extract_l4(head, layers);
    }

    #[inline(never)]
    fn extract_ipv6(&mut self, head: &[u8], at: usize, layers: &Layers) {
        let words = self.words_mut();
        let first = be32(head, at);
        words[8] = be::<8>(head, at + offset::IPV6_SRC);
        words[9] = be::<8>(head, at + offset::IPV6_SRC + 8);
        words[10] = be::<8>(head, at + offset::IPV6_DST);
        words[11] = be::<8>(head, at + offset::IPV6_DST + 8);
        words[16] = first & 0xf_ffff;
        words[7] |= traffic_class(first >> 20 & 0xff)
            | u64::from(layers.ext_headers().0) << 16
            | be::<1>(head, at + offset::IPV6_HOP_LIMIT) << 32
            | fragment(layers.fragment());
        words[5] |= u64::from(layers.ip_proto().0) << 24;
        self.add_layer(Layer::Ip);
        self.extract_l4(head, layers);
        self.extract_nd(head, layers);
    }

    #[inline(always)]
    fn extract_l4(&mut self, head: &[u8], layers: &Layers) {
        let at = layers.l4_offset();
        if layers.l4() == L4::Tcp {
            self.words_mut()[7] |= be16(head, at + offset::TCP_FLAGS) & u64::from(flags::ALL);
        }
        self.words_mut()[5] |= match layers.l4() {
            L4::None => return,
            // TCP, UDP and SCTP have their ports in the first four bytes.
            L4::Tcp | L4::Udp | L4::Sctp => be32(head, at) << 32,
            L4::Icmpv4 | L4::Icmpv6 => be::<1>(head, at) << 48 | be::<1>(head, at + 1) << 32,
        };
        self.add_layer(Layer::L4);
    }

    #[inline]
    fn extract_nd(&mut self, head: &[u8], layers: &Layers) {
        let Some(target) = layers.nd_target() else {
            return;
        };
        let words = self.words_mut();
        words[12] = be::<8>(head, target);
        words[13] = be::<8>(head, target + 8);
        self.add_layer(Layer::NdTarget);
        if let Some(sll) = layers.nd_sll() {
            self.words_mut()[14] = be48(head, sll);
        }
        if let Some(tll) = layers.nd_tll() {
            self.words_mut()[15] = be48(head, tll);
        }
    }

    #[inline(never)]
    fn extract_arp(&mut self, head: &[u8], at: usize) {
        let words = self.words_mut();
        words[4] |= be16(head, at + offset::ARP_OP);
        words[6] = be32(head, at + offset::ARP_SPA) << 32 | be32(head, at + offset::ARP_TPA);
        words[14] = be48(head, at + offset::ARP_SHA);
        words[15] = be48(head, at + offset::ARP_THA);
        self.add_layer(Layer::Arp);
    }
}

/// Returns the type of fragment at its position in word 7 (`NXM_NX_IP_FRAG`).
#[inline]
const fn fragment(kind: Fragment) -> u64 {
    match kind {
        Fragment::Whole => 0,
        Fragment::First => 0b01 << 12,
        Fragment::Later => 0b11 << 12,
    }
}

/// Returns DSCP and ECN at their positions in word 7.
#[inline]
const fn traffic_class(class: u64) -> u64 {
    class >> 2 << 48 | (class & 3) << 40
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compose::PacketText;
    use crate::key::FlowMask;
    use millrace_types::Priority;

    fn key_of(frame: &[u8], depth: Depth) -> FlowKey {
        let mut key = FlowKey::default();
        key.extract(frame, &Layers::parse(frame, depth));
        key
    }

    #[test]
    fn a_packet_composed_from_a_match_satisfies_it() {
        for text in [
            "eth_type=0x1234,eth_src=02:00:00:00:00:09,eth_dst=02:00:00:00:00:08",
            "tcp,vlan_vid=0x1064,vlan_pcp=5,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,tcp_src=1,tcp_dst=80,ip_dscp=46,ip_ecn=1",
            "udp6,ipv6_src=2001:db8::1,ipv6_dst=2001:db8::2,ipv6_flabel=0x12345,udp_src=7,udp_dst=9,ip_dscp=3",
            "sctp,sctp_src=5,sctp_dst=6",
            "icmp,icmpv4_type=8,icmpv4_code=3",
            "arp,arp_op=2,arp_spa=10.0.0.1,arp_tpa=10.0.0.2,arp_sha=02:00:00:00:00:01,arp_tha=02:00:00:00:00:02",
            "mpls,mpls_label=77,mpls_tc=3,mpls_bos=1",
            "eth_type=0x88e7,pbb_isid=4711",
            "icmp6,icmpv6_type=135,icmpv6_code=0,nd_target=2001:db8::5,nd_sll=02:00:00:00:00:03",
            "icmp6,icmpv6_type=136,icmpv6_code=0,nd_target=2001:db8::5,nd_tll=02:00:00:00:00:03",
        ] {
            let packet: PacketText = text.parse().unwrap();
            let key = key_of(&packet.frame().unwrap(), Depth::All);
            assert!(packet.fields.rule(Priority(0)).matches(&key), "{text}: {key:?}");
        }
    }

    #[test]
    fn a_link_layer_address_of_neighbour_discovery_is_zero_without_its_option() {
        for (text, field) in [
            ("icmp6,icmpv6_type=135,icmpv6_code=0", Field::Ipv6NdSll),
            ("icmp6,icmpv6_type=136,icmpv6_code=0", Field::Ipv6NdTll),
        ] {
            let packet: PacketText = text.parse().unwrap();
            let frame = packet.frame().unwrap();
            let without: PacketText = format!("{text},{}=00:00:00:00:00:00", field.name())
                .parse()
                .unwrap();
            let rule = without.fields.rule(Priority(0));
            assert!(
                !rule.matches(&key_of(&frame, Depth::All)),
                "{text}: the option has an address"
            );
            // Only the target is left: the header, 8 bytes, and 16.
            let mut short = frame[..14 + 40 + 24].to_vec();
            short[14 + 5] = 24;
            assert!(rule.matches(&key_of(&short, Depth::All)), "{text}");
            // A message that ends before the target has no such field.
            short.truncate(14 + 40 + 20);
            short[14 + 5] = 20;
            assert!(!rule.matches(&key_of(&short, Depth::All)), "{text}");
        }
    }

    #[test]
    fn pipeline_fields_survive_and_header_fields_do_not() {
        let packet: PacketText = "arp,arp_op=1".parse().unwrap();
        let mut key = FlowKey::default();
        key.words_mut().fill(u64::MAX);
        let frame = packet.frame().unwrap();
        key.extract(&frame, &Layers::parse(&frame, Depth::All));
        assert_eq!(key.field(Field::InPort), u128::from(u32::MAX));
        assert_eq!(key.field(Field::Metadata), u128::from(u64::MAX));
        assert_eq!(key.words()[3..], key_of(&frame, Depth::All).words()[3..]);
    }

    #[test]
    fn a_shallow_parse_finds_the_fields_that_it_was_made_for() {
        let set = |fields: &[Field]| fields.iter().copied().collect();
        assert_eq!(depth_for(FieldSet::EMPTY), None);
        assert_eq!(depth_for(set(&[Field::InPort, Field::TunnelId])), None);
        assert_eq!(depth_for(set(&[Field::InPort, Field::VlanVid])), Some(Depth::L2));
        assert_eq!(depth_for(set(&[Field::EthType, Field::MplsBos])), Some(Depth::L3));
        assert_eq!(depth_for(set(&[Field::TcpDst, Field::Ipv4Src])), Some(Depth::L4));
        assert_eq!(depth_for(FieldSet::ALL), Some(Depth::All));
    }

    proptest! {
        #[test]
        fn no_bytes_make_extraction_fail_and_depth_only_leaves_fields_out(
            frame in prop::collection::vec(any::<u8>(), 0..120),
            kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8847, 0x88e7, 0x8100]),
        ) {
            let mut frame = frame;
            if let Some(bytes) = frame.get_mut(12..15) {
                bytes[..2].copy_from_slice(&kind.to_be_bytes());
                bytes[2] = if kind == 0x86dd { 0x60 } else { 0x45 };
            }
            let full = key_of(&frame, Depth::All);
            for field in Field::ALL {
                let Some(depth) = depth_for([field].into_iter().collect()) else { continue };
                let shallow = key_of(&frame, depth);
                let mut mask = FlowMask::default();
                mask.0.put(field, field.max_value());
                prop_assert_eq!(shallow.masked(&mask), full.masked(&mask), "{}", field);
            }
        }
    }
}
