//! The short way from a packet to its key, for the packets that nearly all packets are.
//!
//! Ethernet with at most one VLAN tag, IPv4 without options and not a fragment, then TCP or UDP: such a packet is
//! told by a few comparisons, and its key is then a few loads at known places. The parse that knows everything
//! takes three times as long. Whatever is unusual, and whatever is broken, is left to it: the short way gives
//! the same key or none, and a property below says so.

use millrace_wire::bytes::{be16, be32, be64};
use millrace_wire::tcp::flags;
use millrace_wire::{Depth, EtherType, IpProto, Layers};

use crate::key::{FlowKey, Layer};

/// Bytes of an Ethernet header without a tag.
pub(crate) const ETHERNET_SIZE: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG_SIZE: usize = 4;
/// Bytes of an IPv4 header without options, and of the shortest TCP and UDP headers (RFC 791, RFC 9293, RFC 768).
pub(crate) const IPV4_SIZE: usize = 20;
pub(crate) const TCP_SIZE: usize = 20;
pub(crate) const UDP_SIZE: usize = 8;
/// What the short way looks at behind the EtherType, of any packet: less than that is unusual, since the shortest
/// Ethernet frame is longer.
pub(crate) const LOOKED_AT: usize = IPV4_SIZE + TCP_SIZE;
/// EtherType IPv4, version 4, five words of header.
pub(crate) const PLAIN_IPV4: u32 = (EtherType::IPV4.0 as u32) << 8 | 0x45;
/// What such a packet has.
pub(crate) const LAYERS: u64 = Layer::Ip.bit() | Layer::L4.bit();
/// More fragments, and the fragment offset (RFC 791).
pub(crate) const IS_FRAGMENT: u16 = 0x3fff;

impl FlowKey {
    /// Fills in what the head of a packet of `size` bytes holds, parsed to `depth`. What is beside the packet
    /// (ports, metadata, tunnel) stays; everything else is overwritten, with zero where the packet has nothing.
    #[inline(always)]
    pub fn read(&mut self, head: &[u8], size: usize, depth: Depth) {
        if depth < Depth::L4 || !self.read_common(head, size) {
            self.read_any(head, size, depth);
        }
    }

    #[inline(never)]
    fn read_any(&mut self, head: &[u8], size: usize, depth: Depth) {
        self.extract(head, &Layers::parse_head(head, size, depth));
    }

    /// Does nothing, and returns false, unless the packet is a common one.
    #[inline(always)]
    fn read_common(&mut self, head: &[u8], size: usize) -> bool {
        let Some(start) = head.first_chunk::<{ ETHERNET_SIZE + LOOKED_AT }>() else {
            return false;
        };
        let mut vlan = 0;
        let (mut pcp, mut at) = (0, ETHERNET_SIZE);
        if be16(start, 12) == EtherType::VLAN.0 {
            let tci = u64::from(be16(start, ETHERNET_SIZE));
            vlan = tci & 0xfff | 0x1000;
            pcp = tci >> 13 << 56;
            at += TAG_SIZE;
        }
        // The EtherType, and what is behind it.
        let Some(bytes) = head
            .get(at - 2..)
            .and_then(<[u8]>::first_chunk::<{ 2 + LOOKED_AT }>)
        else {
            return false;
        };
        // No branch but the last: traffic mixes protocols, and a wrong guess costs more than all of this.
        let total_size = usize::from(be16(bytes, 4));
        let (proto, l4) = (IpProto(bytes[11]), 2 + IPV4_SIZE);
        let (is_udp, is_tcp) = (proto == IpProto::UDP, proto == IpProto::TCP);
        let udp_size = usize::from(be16(bytes, l4 + 4));
        let tcp_header_size = usize::from(bytes[l4 + 12] >> 4) * 4;
        let (least, said) = if is_udp {
            (UDP_SIZE, udp_size)
        } else {
            (TCP_SIZE, tcp_header_size)
        };
        let is_common = (be32(bytes, 0) >> 8 == PLAIN_IPV4)
            & (be16(bytes, 8) & IS_FRAGMENT == 0)
            & (is_udp | is_tcp)
            & (said >= least)
            & (IPV4_SIZE + said <= total_size)
            & (at + total_size <= size);
        if !is_common {
            return false;
        }
        let class = u64::from(bytes[3]);
        // UDP has none.
        let tcp_flags = u64::from(be16(bytes, l4 + 12) & flags::ALL) * u64::from(is_tcp);
        let words = self.words_mut();
        words[3] = be64(start, 0) & !0xffff | vlan;
        words[4] = be64(start, 6) & !0xffff;
        words[5] = u64::from(be32(bytes, l4)) << 32
            | u64::from(proto.0) << 24
            | LAYERS
            | u64::from(EtherType::IPV4.0);
        words[6] = be64(bytes, 2 + 12);
        words[7] = pcp | class >> 2 << 48 | (class & 3) << 40 | u64::from(bytes[10]) << 32 | tcp_flags;
        words[8..].fill(0);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compose::PacketText;

    const COMMON: [&str; 6] = [
        "tcp,ipv4_src=10.0.0.1,tcp_src=1,nw_ttl=255,tcp_flags=0xfff",
        "udp,ipv4_src=10.0.0.1,udp_src=1,nw_ttl=0,nw_frag=no",
        "tcp,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,tcp_src=1,tcp_dst=80,ip_dscp=46,ip_ecn=1",
        "udp,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,udp_src=1,udp_dst=80",
        "tcp,vlan_vid=0x1064,vlan_pcp=5,ipv4_src=10.0.0.1,tcp_dst=80,ip_dscp=46,ip_ecn=1",
        "udp,vlan_vid=0x1000,ipv4_src=10.0.0.1,udp_src=7",
    ];

    fn frame(text: &str) -> Vec<u8> {
        text.parse::<PacketText>().unwrap().frame().unwrap()
    }

    /// A key with something everywhere.
    fn dirty() -> FlowKey {
        let mut key = FlowKey::default();
        key.words_mut().fill(u64::MAX);
        key
    }

    #[test]
    fn common_packets_take_the_short_way() {
        for text in COMMON {
            let frame = frame(text);
            assert!(dirty().read_common(&frame, frame.len()), "{text}");
            let mut key = dirty();
            key.read(&frame, frame.len(), Depth::All);
            let fields = text.parse::<PacketText>().unwrap().fields;
            assert!(fields.rule(millrace_types::Priority(0)).matches(&key), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn both_ways_give_the_same_key(
            text in prop::sample::select([&COMMON[..], &["icmp", "udp6", "arp", "sctp", "mpls"]].concat()),
            // Where a byte is changed, mostly in headers.
            changes in prop::collection::vec((0..60usize, any::<u8>()), 0..3),
            bit in prop::option::of((12..46usize, 0..8u32)),
            head_size in prop_oneof![3 => Just(64usize), 1 => 0..64usize],
            lies in prop_oneof![3 => Just(0isize), 1 => -64..64isize],
            depth in prop::sample::select(vec![Depth::L2, Depth::L3, Depth::L4, Depth::All]),
        ) {
            let mut frame = frame(text);
            for (at, byte) in changes {
                frame[at] = byte;
            }
            if let Some((at, bit)) = bit {
                frame[at] ^= 1 << bit;
            }
            let head = &frame[..head_size.min(frame.len())];
            let size = frame.len().saturating_add_signed(lies).max(head.len());
            let (mut short, mut long) = (dirty(), dirty());
            short.read(head, size, depth);
            long.read_any(head, size, depth);
            prop_assert_eq!(short, long);
        }
    }
}
