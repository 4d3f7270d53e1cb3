//! The header columns of a burst: the fastest path from packets to the columns of a lookup.
//!
//! Common packets (see `common.rs`) have every field that rules match at constant offsets. If a table's packets need
//! no key afterwards, their keys are not made: a few words of each header are copied, the first words of all packets
//! into one array, the second words into another, and the packet types are determined for eight packets at once. The
//! columns of a lookup follow with a few instructions each. All other packets are listed ([`HeaderColumns::others`]),
//! and their keys are read.
//!
//! The columns equal those of the keys bit for bit, which a property test below checks.

use millrace_wire::bytes::be16;
use millrace_wire::tcp::flags;
use millrace_wire::{EtherType, IpProto};

use super::BURST;
use super::columns::{Burst, COLUMNS, Projection};
use super::simd::Simd;
use crate::common::{
    ETHERNET_SIZE, IPV4_SIZE, IS_FRAGMENT, LAYERS, LOOKED_AT, PLAIN_IPV4, TAG_SIZE, TCP_SIZE, UDP_SIZE,
};
use crate::connection;
use crate::key::FlowKey;

/// Offset in bytes of the size and the control bits in a TCP header (RFC 9293, section 3.1).
const TCP_SIZE_AND_FLAGS: usize = 12;

/// One word of the headers of each packet, in the byte order of memory.
type Words = [u64; BURST];

/// The beginnings of the packets of a burst, in columns. The structure is large, so that callers keep it between
/// bursts.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub struct HeaderColumns {
    simd: Simd,
    len: usize,
    /// The bytes from the last EtherType on: EtherType, version and size of the IPv4 header, traffic class,
    /// total size, identification.
    start: Words,
    /// Fragment field, TTL, protocol, checksum, and half of the IPv4 source.
    middle: Words,
    /// IPv4 source and destination.
    addresses: Words,
    /// Ports, then the size of a UDP datagram and the bytes after it.
    ports: Words,
    /// In host byte order:
    ///
    /// ```text
    ///  63                       16 15  12 11        0
    /// | packet size from IPv4 on  | size | ctl bits  |   size: TCP data offset, ctl bits: TCP control bits
    /// ```
    size: Words,
    /// Ethernet destination and source, each with two further bytes.
    eth_dst: Words,
    eth_src: Words,
    /// In host byte order: tag control information in bits 0 to 15; bit 16 is set if there is a tag.
    tag: Words,
    /// Nonzero for packets that are not common.
    other: Words,
    /// One bit for each packet that is not common.
    others: u64,
}

impl HeaderColumns {
    /// Returns the columns of an empty burst.
    pub fn new() -> HeaderColumns {
        HeaderColumns::with_simd(Simd::detect())
    }

    /// Returns the columns of an empty burst, for the given vector instructions.
    pub fn with_simd(simd: Simd) -> HeaderColumns {
        HeaderColumns {
            simd,
            len: 0,
            start: [0; BURST],
            middle: [0; BURST],
            addresses: [0; BURST],
            ports: [0; BURST],
            size: [0; BURST],
            eth_dst: [0; BURST],
            eth_src: [0; BURST],
            tag: [0; BURST],
            other: [0; BURST],
            others: 0,
        }
    }

    /// Reads the headers of a burst: the first bytes of each packet, and its size in bytes in all segments. Packets
    /// after the first [`BURST`] are ignored. `with_layer2` is true if some rule matches a field before the IP header
    /// ([`Adaptive::matches_layer2`](super::Adaptive::matches_layer2)).
    ///
    /// `read` must read the key of the packet `i` of the burst into `keys[i]`. It is called for the packets of
    /// [`HeaderColumns::others`]; all other keys stay unchanged. `keys` is at least as long as the burst.
    #[inline(always)]
    pub fn read<'p>(
        &mut self,
        with_layer2: bool,
        packets: impl Iterator<Item = (&'p [u8], usize)>,
        keys: &mut [FlowKey],
        read: impl FnMut(usize, &mut FlowKey),
    ) {
        if with_layer2 {
            self.copy::<true>(packets);
        } else {
            self.copy::<false>(packets);
        }
        if self.others != 0 {
            self.read_others(keys, read);
        }
    }

    #[inline(always)]
    fn copy<'p, const LINKS: bool>(&mut self, packets: impl Iterator<Item = (&'p [u8], usize)>) {
        let mut len = 0;
        for (i, (head, size)) in packets.take(BURST).enumerate() {
            self.copy_one::<LINKS>(i % BURST, head, size);
            len = i + 1;
        }
        self.len = len;
        self.simd.sort_headers(self);
    }

    #[inline(always)]
    fn copy_one<const LINKS: bool>(&mut self, i: usize, head: &[u8], size: usize) {
        /// Number of bytes from the EtherType to the end of the bytes that the fast path reads.
        const SEEN: usize = 2 + LOOKED_AT;
        // Zero is not an EtherType.
        self.start[i] = 0;
        let Some(link) = head.first_chunk::<{ ETHERNET_SIZE + LOOKED_AT }>() else {
            return;
        };
        let is_tagged = [link[12], link[13]] == EtherType::VLAN.0.to_be_bytes();
        let at = ETHERNET_SIZE + TAG_SIZE * usize::from(is_tagged);
        let Some(bytes) = head.get(at - 2..).and_then(<[u8]>::first_chunk::<SEEN>) else {
            return;
        };
        self.start[i] = word(bytes, 0);
        self.middle[i] = word(bytes, 8);
        self.addresses[i] = word(bytes, 2 + 12);
        self.ports[i] = word(bytes, 2 + IPV4_SIZE);
        // The packet is at least as long as its first segment.
        self.size[i] =
            (size.wrapping_sub(at) as u64) << 16 | u64::from(be16(bytes, 2 + IPV4_SIZE + TCP_SIZE_AND_FLAGS));
        if LINKS {
            self.eth_dst[i] = word(link, 0);
            self.eth_src[i] = word(link, 6);
            let tci = u64::from(u16::from_be_bytes([link[ETHERNET_SIZE], link[ETHERNET_SIZE + 1]]));
            self.tag[i] = if is_tagged { tci | 1 << 16 } else { 0 };
        }
    }

    /// Returns the packets that are not common, one bit each.
    #[inline]
    pub fn others(&self) -> u64 {
        self.others
    }

    /// Returns the connection number of a common packet, which equals that of its key.
    #[inline]
    pub fn connection(&self, packet: usize) -> u32 {
        let packet = packet % BURST;
        let ports = word_of_ports(self.ports[packet], self.middle[packet]);
        connection::of_ip(u64::from_be(self.addresses[packet]), ports)
    }

    /// Calls `read` for the keys of packets that are not common.
    #[cold]
    fn read_others(&self, keys: &mut [FlowKey], mut read: impl FnMut(usize, &mut FlowKey)) {
        for (i, key) in keys.iter_mut().enumerate().take(BURST) {
            if self.others >> i & 1 != 0 {
                read(i, key);
            }
        }
    }

    /// Determines which packets are common, by the conditions of [`FlowKey::read`], for many packets at once.
    #[inline(always)]
    pub(super) fn sort(&mut self) {
        let len = self.len.min(BURST);
        let padded = len.next_multiple_of(8).min(BURST);
        let mut any = 0;
        for i in 0..padded {
            let (start, middle) = (u64::from_be(self.start[i]), u64::from_be(self.middle[i]));
            let total_size = start >> 16 & 0xffff;
            let proto = middle >> 32 & 0xff;
            let is_udp = is_zero(proto ^ u64::from(IpProto::UDP.0));
            let is_tcp = is_zero(proto ^ u64::from(IpProto::TCP.0));
            let udp = is_udp.wrapping_neg();
            let udp_size = u64::from_be(self.ports[i]) >> 16 & 0xffff;
            let tcp_size = self.size[i] >> 10 & 0x3c;
            let said = udp_size & udp | tcp_size & !udp;
            let least = UDP_SIZE as u64 & udp | TCP_SIZE as u64 & !udp;
            let is_too_small = said.wrapping_sub(least)
                | total_size.wrapping_sub(IPV4_SIZE as u64 + said)
                | (self.size[i] >> 16).wrapping_sub(total_size);
            self.other[i] = (start >> 40 ^ u64::from(PLAIN_IPV4))
                | middle >> 48 & u64::from(IS_FRAGMENT)
                | (is_udp | is_tcp) ^ 1
                | is_too_small >> 63;
        }
        for other in &self.other[..len] {
            any |= other;
        }
        self.others = 0;
        if any != 0 {
            self.name_others(len);
        }
    }

    #[inline(never)]
    fn name_others(&mut self, len: usize) {
        for (i, other) in self.other[..len].iter().enumerate() {
            self.others |= u64::from(*other != 0) << i;
        }
    }

    /// Writes the words that a table compares into the columns. `pipeline_fields` has the fields that are not in the
    /// packets' bytes, and `keys` has the keys of the packets that are not common.
    #[inline(always)]
    pub(super) fn project(
        &self,
        projection: &Projection,
        pipeline_fields: &FlowKey,
        keys: &[FlowKey],
        burst: &mut Burst,
    ) {
        let padded = self.len.next_multiple_of(8).min(BURST);
        for (from, column) in projection.columns().zip(burst.iter_mut()) {
            let column = &mut column[..padded];
            match from {
                0..=2 => column.fill(pipeline_fields.words()[from]),
                3 => {
                    for ((place, eth_dst), tag) in column.iter_mut().zip(&self.eth_dst).zip(&self.tag) {
                        *place = u64::from_be(*eth_dst) & !0xffff | tag & 0xfff | tag >> 4 & 0x1000;
                    }
                }
                4 => {
                    for (place, eth_src) in column.iter_mut().zip(&self.eth_src) {
                        *place = u64::from_be(*eth_src) & !0xffff;
                    }
                }
                5 => {
                    for ((place, ports), middle) in column.iter_mut().zip(&self.ports).zip(&self.middle) {
                        *place = word_of_ports(*ports, *middle);
                    }
                }
                6 => {
                    for (place, addresses) in column.iter_mut().zip(&self.addresses) {
                        *place = u64::from_be(*addresses);
                    }
                }
                7 => {
                    let words = self.start.iter().zip(&self.middle).zip(&self.size);
                    for ((place, tag), ((start, middle), size)) in column.iter_mut().zip(&self.tag).zip(words)
                    {
                        let class = u64::from_be(*start) >> 32 & 0xff;
                        let middle = u64::from_be(*middle);
                        let ttl = middle >> 40 & 0xff;
                        // A common packet is TCP or UDP; their protocol numbers (6 and 17) differ in bit 0.
                        let is_udp = middle >> 32 & 1;
                        let tcp_flags = size & u64::from(flags::ALL) & is_udp.wrapping_sub(1);
                        *place = (tag >> 13 & 7) << 56
                            | class >> 2 << 48
                            | (class & 3) << 40
                            | ttl << 32
                            | tcp_flags;
                    }
                }
                _ => column.fill(0),
            }
        }
        if self.others != 0 {
            self.project_others(projection, keys, burst);
        }
    }

    #[inline(never)]
    fn project_others(&self, projection: &Projection, keys: &[FlowKey], burst: &mut Burst) {
        for (from, column) in projection.columns().zip(burst) {
            let mut left = self.others;
            while left != 0 {
                let i = left.trailing_zeros() as usize;
                left &= left - 1;
                column[i] = keys.get(i).map_or(0, |key| key.words()[from % COLUMNS]);
            }
        }
    }
}

impl Default for HeaderColumns {
    fn default() -> HeaderColumns {
        HeaderColumns::new()
    }
}

/// Returns the word of a key with the ports, from the header words with the ports and the protocol.
#[inline(always)]
fn word_of_ports(ports: u64, middle: u64) -> u64 {
    let proto = u64::from_be(middle) >> 32 & 0xff;
    u64::from_be(ports) >> 32 << 32 | proto << 24 | LAYERS | u64::from(EtherType::IPV4.0)
}

/// Returns eight bytes at the constant offset `at`, in one load. Without this function, the compiler loads
/// bytes that two words share one by one.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_ne_bytes(*word))
}

/// Returns 1 if a number of less than 64 bits is zero, otherwise 0; without a comparison, which old vector
/// instructions do not have.
#[inline(always)]
const fn is_zero(number: u64) -> u64 {
    number.wrapping_sub(1) >> 63
}

#[cfg(test)]
mod tests {
    use millrace_types::PortNo;
    use millrace_wire::Depth;
    use proptest::prelude::*;

    use super::*;
    use crate::compose::PacketText;
    use crate::field::Field;
    use crate::key::FlowMask;

    /// Returns a projection of every word.
    fn whole() -> Projection {
        let mut mask = FlowMask::default();
        mask.0.words_mut().fill(u64::MAX);
        let mut projection = Projection::default();
        projection.extend(&mask);
        projection
    }

    fn frame(text: &str) -> Vec<u8> {
        text.parse::<PacketText>().unwrap().frame().unwrap()
    }

    /// Returns a frame: the bytes in the first segment, and the size of all segments.
    fn a_packet() -> impl Strategy<Value = (Vec<u8>, usize)> {
        let text = prop::sample::select(vec![
            "tcp,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,tcp_src=1,tcp_dst=80,ip_dscp=46,ip_ecn=1",
            "udp,ipv4_src=10.0.0.1,ipv4_dst=10.0.0.2,udp_src=1,udp_dst=80,eth_dst=02:00:00:00:00:07",
            "tcp,nw_ttl=255,tcp_flags=0xfff,tcp_dst=80",
            "udp,nw_ttl=0,udp_dst=80",
            "tcp,nw_frag=first",
            "udp,nw_frag=later",
            "tcp,vlan_vid=0x1064,vlan_pcp=5,ipv4_src=10.0.0.1,tcp_dst=80,ip_dscp=46,ip_ecn=1",
            "udp,vlan_vid=0x1000,ipv4_src=10.0.0.1,udp_src=7,eth_src=02:00:00:00:00:08",
            "icmp",
            "udp6",
            "arp",
            "sctp",
            "mpls",
        ]);
        let changes = prop::collection::vec((0..60usize, any::<u8>()), 0..2);
        let bit = prop::option::of((12..50usize, 0..8u32));
        let head_size = prop_oneof![6 => Just(64usize), 1 => 0..64usize];
        let size_error = prop_oneof![6 => Just(0isize), 1 => -64..64isize];
        (text, changes, bit, head_size, size_error).prop_map(|(text, changes, bit, head_size, size_error)| {
            let mut frame = frame(text);
            frame.resize(frame.len().max(60), 0);
            for (at, byte) in changes {
                frame[at] = byte;
            }
            if let Some((at, bit)) = bit {
                frame[at] ^= 1 << bit;
            }
            let size = frame.len();
            frame.truncate(head_size);
            let size = size.saturating_add_signed(size_error).max(frame.len());
            (frame, size)
        })
    }

    #[test]
    fn only_uncommon_packets_are_named() {
        let frames = ["tcp,tcp_dst=80", "icmp", "udp,vlan_vid=0x1001", "udp6", "udp"].map(frame);
        for simd in Simd::available() {
            let mut headers = HeaderColumns::with_simd(simd);
            headers.copy::<true>(frames.iter().map(|frame| (&**frame, frame.len())));
            assert_eq!((headers.len, headers.others()), (5, 0b1010), "{}", simd.name());
            headers.copy::<true>(core::iter::empty());
            assert_eq!((headers.len, headers.others()), (0, 0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1024 }))]

        #[test]
        fn the_columns_of_heads_are_those_of_keys(
            bursts in prop::collection::vec(prop::collection::vec(a_packet(), 0..=BURST), 1..4),
            in_port in 1..100u32,
        ) {
            let mut pipeline_fields = FlowKey::default();
            pipeline_fields.set_field(Field::InPort, u128::from(PortNo::from_raw(in_port).raw()));
            pipeline_fields.set_field(Field::Metadata, 77);
            let projection = whole();
            for simd in Simd::available() {
                // The columns of one burst do not affect the next.
                let mut headers = HeaderColumns::with_simd(simd);
                for packets in &bursts {
                    let mut keys = vec![pipeline_fields; packets.len()];
                    for (key, (head, size)) in keys.iter_mut().zip(packets) {
                        key.read(head, *size, Depth::All);
                    }
                    headers.copy::<true>(packets.iter().map(|(head, size)| (&**head, *size)));
                    prop_assert_eq!(headers.len, packets.len());
                    let mut others = keys.clone();
                    for (i, key) in others.iter_mut().enumerate() {
                        // No lookup reads these keys.
                        if headers.others() >> i & 1 == 0 {
                            *key = FlowKey::default();
                        }
                    }
                    let mut burst = [[u64::MAX; BURST]; COLUMNS];
                    headers.project(&projection, &pipeline_fields, &others, &mut burst);
                    for (i, key) in keys.iter().enumerate().filter(|(i, _)| headers.others() >> i & 1 == 0) {
                        prop_assert_eq!(headers.connection(i), key.connection());
                    }
                    for (from, column) in projection.columns().zip(&burst) {
                        for (key, word) in keys.iter().zip(column) {
                            prop_assert_eq!(key.words()[from], *word, "word {} by {}", from, simd.name());
                        }
                    }
                }
            }
        }
    }
}
