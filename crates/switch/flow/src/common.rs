//! The fast path from a packet to its key, for the most common packets.
//!
//! A common packet is Ethernet with at most one VLAN tag, then IPv4 without options and not fragmented, then TCP or
//! UDP. A few comparisons recognise it, and its key takes a few loads at constant offsets. The full parse takes three
//! times as long. The full parse handles every other packet and every malformed one: the fast path writes the same key
//! or none, which a property test below checks.

use millrace_wire::bytes::{be16, be32, be64};
use millrace_wire::tcp::flags;
use millrace_wire::{Depth, EtherType, IpProto, Layers};

use crate::key::{FlowKey, Layer};

/// Size of an Ethernet header without a tag in bytes.
pub(crate) const ETHERNET_SIZE: usize = 14;
/// Size of a VLAN tag in bytes.
pub(crate) const TAG_SIZE: usize = 4;
/// Size in bytes of an IPv4 header without options, and of the shortest TCP and UDP headers (RFC 791, RFC 9293, RFC
/// 768).
pub(crate) const IPV4_SIZE: usize = 20;
pub(crate) const TCP_SIZE: usize = 20;
pub(crate) const UDP_SIZE: usize = 8;
/// Number of bytes after the EtherType that the fast path reads. Packets with fewer bytes are not common, because the
/// shortest Ethernet frame has more.
pub(crate) const LOOKED_AT: usize = IPV4_SIZE + TCP_SIZE;
/// EtherType IPv4, version 4, and a header of five 32-bit words.
pub(crate) const PLAIN_IPV4: u32 = (EtherType::IPV4.0 as u32) << 8 | 0x45;
/// The headers of a common packet.
pub(crate) const LAYERS: u64 = Layer::Ip.bit() | Layer::L4.bit();
/// The more-fragments bit and the fragment offset (RFC 791, section 3.1).
pub(crate) const IS_FRAGMENT: u16 = 0x3fff;

impl FlowKey {
    /// Writes the fields of a packet of `size` bytes that begins with `head`, parsed to `depth`. Fields that are not
    /// in the packet's bytes (ports, metadata, tunnel) keep their values; every other field is overwritten, with zero
    /// if the packet does not have it.
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

    /// Reads a common packet; returns false, and leaves the key unchanged, for any other packet.
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
        // The EtherType and the bytes after it.
        let Some(bytes) = head
            .get(at - 2..)
            .and_then(<[u8]>::first_chunk::<{ 2 + LOOKED_AT }>)
        else {
            return false;
        };
        // The function has one branch, at its end: protocols alternate in traffic, and a mispredicted branch costs
        // more than the whole computation.
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
        // UDP has no control bits.
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

    /// Returns a key with every bit set.
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
            // The offsets of changed bytes, mostly in headers.
            changes in prop::collection::vec((0..60usize, any::<u8>()), 0..3),
            bit in prop::option::of((12..46usize, 0..8u32)),
            head_size in prop_oneof![3 => Just(64usize), 1 => 0..64usize],
            size_error in prop_oneof![3 => Just(0isize), 1 => -64..64isize],
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
            let size = frame.len().saturating_add_signed(size_error).max(head.len());
            let (mut short, mut long) = (dirty(), dirty());
            short.read(head, size, depth);
            long.read_any(head, size, depth);
            prop_assert_eq!(short, long);
        }
    }
}
