//! Several fields of an IP packet set at once, with one update of each checksum.
//!
//! A NAT or a router sets four to six fields of every packet of a connection to the same values. If it sets
//! them one by one, each field needs a look at the packet's [`Layers`](crate::Layers) and an update of one or
//! two checksums. [`HeaderRewrite`] is compiled once from a list of fields. It is applied to each packet with
//! a few masked words:
//!
//! ```text
//! offset from L3    0 1         8 9  10  12          16          20    22    24        26         36
//!                  +-+-+-------+-+--+---+-----------+-----------+-----+-----+---------+----------+----
//!                  | |C|       |T|pr|HC | source    | dest      |sport|dport|         |UDP sum   |TCP sum
//!                  +-+-+-------+-+--+---+-----------+-----------+-----+-----+---------+----------+----
//! masked words      word        word     one 64-bit word         one 32-bit word
//! ```
//!
//! By RFC 1624, equation 3, a checksum changes by the sum of the complemented old words and the new words. RFC 1071,
//! section 2(B), allows all sums to be taken in the byte order of the machine.
//!
//! Only packets of two layouts are rewritten. Both begin with Ethernet and at most one 802.1Q tag. The first, drawn
//! above, is IPv4 without options, not a fragment, TCP or UDP with a complete header. The second is a whole IPv6 fixed
//! header, for rewrites of a router: MAC addresses, the tag and the hop limit, which no checksum covers (RFC 8200,
//! section 8.1). For every other packet, the functions of [`rewrite`](super) set one field after the other. For packets
//! of these layouts, both ways give the same bytes.

use core::net::Ipv4Addr;

use millrace_types::{Mac, Pcp, Vid};

use crate::bytes::{be16, chunk_mut};
use crate::{Dscp, Ecn, EtherType, IpProto, L4, ethernet, ipv4, ipv6, tcp, udp, vlan};

/// Size of the IPv4 layout in bytes, from the IPv4 header on: the fixed IPv4 header and the fixed TCP header. The IPv6
/// fixed header has the same size.
const INNER_SIZE: usize = ipv4::MIN_SIZE + tcp::MIN_SIZE;
const _: () = assert!(INNER_SIZE == ipv6::SIZE);
/// Size of the window in bytes: the EtherType and the layout.
const WINDOW_SIZE: usize = 2 + INNER_SIZE;
/// Offsets within the window.
const IP: usize = 2;
const TRANSPORT: usize = IP + ipv4::MIN_SIZE;
/// The identifier and the priority in a tag's control information (IEEE 802.1Q, section 9.6).
const VID: u16 = 0x0fff;
const PCP: u16 = 0xe000;
const PCP_SHIFT: u32 = 13;

const SETS_ETH_DST: u8 = 1 << 0;
const SETS_ETH_SRC: u8 = 1 << 1;
const SETS_TAG: u8 = 1 << 2;
const SETS_CLASS: u8 = 1 << 3;
const SETS_TTL: u8 = 1 << 4;
const DECREMENTS_TTL: u8 = 1 << 5;
/// Flag: an address is set.
const SETS_ADDRESS: u8 = 1 << 6;
/// Flag: a port is set.
const SETS_PORT: u8 = 1 << 7;

/// The flags of fields that the header checksum of IPv4 covers.
const IPV4_CHECKED: u8 = SETS_CLASS | SETS_TTL | DECREMENTS_TTL | SETS_ADDRESS;
/// The flags of fields that the checksums of TCP and UDP cover.
const TRANSPORT_CHECKED: u8 = SETS_ADDRESS | SETS_PORT;

/// The flags of fields that an IPv6 packet has as well: those of Ethernet and the tag, and the hop limit.
const IPV6_FIELDS: u8 = SETS_ETH_DST | SETS_ETH_SRC | SETS_TAG | SETS_TTL | DECREMENTS_TTL;

/// Values for several header fields of a TCP or UDP packet over IPv4, or of an IPv6 packet, compiled to be applied to many packets.
///
/// A value fills one cache line. Values and masks are kept in the byte order of the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub struct HeaderRewrite {
    /// Source and destination address; bits that are kept are zero.
    addresses: u64,
    /// Mask of the address bits that `addresses` replaces.
    addresses_mask: u64,
    /// Source and destination port; bits that are kept are zero.
    ports: u32,
    /// Mask of the port bits that `ports` replaces.
    ports_mask: u32,
    eth_dst: [u8; 6],
    eth_src: [u8; 6],
    /// Tag control information; bits that are kept are zero.
    tci: u16,
    /// Mask of the bits that `tci` replaces.
    tci_mask: u16,
    /// DSCP and ECN; bits that are kept are zero.
    class: u8,
    /// Mask of the bits that `class` replaces.
    class_mask: u8,
    /// The new time to live, if `SETS_TTL` is set.
    ttl: u8,
    flags: u8,
    /// The protocol of the ports to set; zero if no port is set.
    proto: u8,
}

/// A field that [`HeaderRewrite`] can set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderField {
    /// The Ethernet destination.
    EthDst(Mac),
    /// The Ethernet source.
    EthSrc(Mac),
    /// The identifier of the VLAN tag, if there is one.
    VlanVid(Vid),
    /// The priority of the VLAN tag, if there is one.
    VlanPcp(Pcp),
    /// The differentiated services code point.
    Dscp(Dscp),
    /// The explicit congestion notification.
    Ecn(Ecn),
    /// The time to live.
    Ttl(u8),
    /// One less than the packet's time to live.
    DecTtl,
    /// The IPv4 source address.
    Ipv4Src(Ipv4Addr),
    /// The IPv4 destination address.
    Ipv4Dst(Ipv4Addr),
    /// The source port of a protocol: [`L4::Tcp`] or [`L4::Udp`].
    L4Src(L4, u16),
    /// The destination port of a protocol: [`L4::Tcp`] or [`L4::Udp`].
    L4Dst(L4, u16),
}

impl HeaderRewrite {
    /// A rewrite that changes nothing.
    pub const NONE: HeaderRewrite = HeaderRewrite {
        addresses: 0,
        addresses_mask: 0,
        ports: 0,
        ports_mask: 0,
        eth_dst: [0; 6],
        eth_src: [0; 6],
        tci: 0,
        tci_mask: 0,
        class: 0,
        class_mask: 0,
        ttl: 0,
        flags: 0,
        proto: 0,
    };

    /// Adds a field. Returns false, and changes nothing, if the rewrite cannot express it: a second value for an
    /// address, a port or the time to live, ports of two protocols, ports of SCTP.
    #[must_use]
    pub fn set(&mut self, field: HeaderField) -> bool {
        match field {
            HeaderField::EthDst(mac) => {
                self.eth_dst = mac.0;
                self.flags |= SETS_ETH_DST;
                true
            }
            HeaderField::EthSrc(mac) => {
                self.eth_src = mac.0;
                self.flags |= SETS_ETH_SRC;
                true
            }
            HeaderField::VlanVid(vid) => self.set_tag(VID, vid.raw()),
            HeaderField::VlanPcp(pcp) => self.set_tag(PCP, u16::from(pcp.raw()) << PCP_SHIFT),
            HeaderField::Dscp(dscp) => self.set_class(0xfc, dscp.raw() << 2),
            HeaderField::Ecn(ecn) => self.set_class(0x03, ecn.raw()),
            HeaderField::Ttl(ttl) => {
                self.ttl = ttl;
                self.change_ttl(SETS_TTL)
            }
            HeaderField::DecTtl => self.change_ttl(DECREMENTS_TTL),
            HeaderField::Ipv4Src(address) => self.set_address(0, address),
            HeaderField::Ipv4Dst(address) => self.set_address(4, address),
            HeaderField::L4Src(l4, port) => self.set_port(0, l4, port),
            HeaderField::L4Dst(l4, port) => self.set_port(2, l4, port),
        }
    }

    fn set_tag(&mut self, mask: u16, value: u16) -> bool {
        let (mask, value) = (mask.to_be(), value.to_be());
        self.tci = self.tci & !mask | value;
        self.tci_mask |= mask;
        self.flags |= SETS_TAG;
        true
    }

    fn set_class(&mut self, mask: u8, value: u8) -> bool {
        self.class = self.class & !mask | value;
        self.class_mask |= mask;
        self.flags |= SETS_CLASS;
        true
    }

    fn change_ttl(&mut self, flag: u8) -> bool {
        let is_first = self.flags & (SETS_TTL | DECREMENTS_TTL) == 0;
        if is_first {
            self.flags |= flag;
        }
        is_first
    }

    fn set_address(&mut self, at: usize, address: Ipv4Addr) -> bool {
        let (mut value, mut mask) = ([0; 8], [0; 8]);
        value[at..at + 4].copy_from_slice(&address.octets());
        mask[at..at + 4].fill(0xff);
        let mask = u64::from_ne_bytes(mask);
        let is_first = self.addresses_mask & mask == 0;
        if is_first {
            self.addresses |= u64::from_ne_bytes(value);
            self.addresses_mask |= mask;
            self.flags |= SETS_ADDRESS;
        }
        is_first
    }

    fn set_port(&mut self, at: usize, l4: L4, port: u16) -> bool {
        let proto = match l4 {
            L4::Tcp => IpProto::TCP.0,
            L4::Udp => IpProto::UDP.0,
            L4::None | L4::Sctp | L4::Icmpv4 | L4::Icmpv6 => return false,
        };
        let (mut value, mut mask) = ([0; 4], [0; 4]);
        value[at..at + 2].copy_from_slice(&port.to_be_bytes());
        mask[at..at + 2].fill(0xff);
        let mask = u32::from_ne_bytes(mask);
        if self.ports_mask & mask != 0 || ![0, proto].contains(&self.proto) {
            return false;
        }
        self.ports |= u32::from_ne_bytes(value);
        self.ports_mask |= mask;
        self.proto = proto;
        self.flags |= SETS_PORT;
        true
    }

    /// Sets all fields in the head of a packet of `size` bytes (all segments together). Returns false, and changes
    /// nothing, if the packet is of neither layout above, is not of the protocol whose ports are set, has a time to live
    /// that cannot be decremented (0 or 1), or is an IPv6 packet and the rewrite sets a field that only IPv4 packets have.
    #[inline(always)]
    #[must_use]
    pub fn apply(&self, head: &mut [u8], size: usize) -> bool {
        let Some(link) = head.first_chunk::<{ ethernet::SIZE }>() else {
            return false;
        };
        let is_tagged = be16(link, ethernet::SIZE - 2) == EtherType::VLAN.0;
        let l3 = ethernet::SIZE + vlan::SIZE * usize::from(is_tagged);
        let Some(window) = chunk_mut::<WINDOW_SIZE>(head, l3 - 2) else {
            return false;
        };
        let size = size.saturating_sub(l3);
        if be16(window, 0) == EtherType::IPV6.0 {
            return self.apply_to_ipv6(head, (l3, size), is_tagged);
        }
        let proto = window[IP + ipv4::offset::PROTO];
        let ttl = window[IP + ipv4::offset::TTL];
        let has_proto = self.flags & SETS_PORT == 0 || self.proto == proto;
        let has_ttl = self.flags & DECREMENTS_TTL == 0 || ttl > 1;
        if !(is_of_layout(window, size) & has_proto & has_ttl) {
            return false;
        }
        self.apply_from_ip(window);
        self.apply_to_link(head, is_tagged);
        true
    }

    /// Sets the hop limit of an IPv6 packet, and the fields of Ethernet. Its header begins at `l3`, with `size` bytes from
    /// there on. Returns false, and changes nothing, as [`HeaderRewrite::apply`] does.
    #[inline]
    fn apply_to_ipv6(&self, head: &mut [u8], (l3, size): (usize, usize), is_tagged: bool) -> bool {
        let Some(header) = chunk_mut::<{ ipv6::SIZE }>(head, l3) else {
            return false;
        };
        let is_version_6 = header[0] >> 4 == 6;
        let is_whole = ipv6::SIZE + usize::from(be16(header, ipv6::offset::PAYLOAD_SIZE)) <= size;
        let hop_limit = &mut header[ipv6::offset::HOP_LIMIT];
        let is_forwarded = self.flags & DECREMENTS_TTL == 0 || *hop_limit > 1;
        if self.flags & !IPV6_FIELDS != 0 || !(is_version_6 & is_whole & is_forwarded) {
            return false;
        }
        if self.flags & SETS_TTL != 0 {
            *hop_limit = self.ttl;
        } else if self.flags & DECREMENTS_TTL != 0 {
            *hop_limit -= 1;
        }
        self.apply_to_link(head, is_tagged);
        true
    }

    #[inline(always)]
    fn apply_to_link(&self, head: &mut [u8], is_tagged: bool) {
        if self.flags & (SETS_ETH_DST | SETS_ETH_SRC | SETS_TAG) == 0 {
            return;
        }
        // A packet of the layout is longer, so this does not return.
        let Some(link) = head.first_chunk_mut::<{ ethernet::SIZE + vlan::SIZE }>() else {
            return;
        };
        if self.flags & SETS_ETH_DST != 0 {
            link[..6].copy_from_slice(&self.eth_dst);
        }
        if self.flags & SETS_ETH_SRC != 0 {
            link[6..12].copy_from_slice(&self.eth_src);
        }
        if self.flags & SETS_TAG != 0 && is_tagged {
            let [.., high, low, _, _] = link;
            let old = u16::from_ne_bytes([*high, *low]);
            [*high, *low] = (old & !self.tci_mask | self.tci).to_ne_bytes();
        }
    }

    /// Changes the IPv4 header and the ports, and both checksums.
    #[inline(always)]
    fn apply_from_ip(&self, window: &mut [u8; WINDOW_SIZE]) {
        const ADDRESSES: usize = IP + ipv4::offset::SRC;
        let mut addresses = 0;
        if self.flags & SETS_ADDRESS != 0 {
            let old = load64(window, ADDRESSES);
            let new = old & !self.addresses_mask | self.addresses;
            window[ADDRESSES..ADDRESSES + 8].copy_from_slice(&new.to_ne_bytes());
            addresses = halves(!old & self.addresses_mask) + halves(self.addresses);
        }
        if self.flags & IPV4_CHECKED != 0 {
            let mut change = addresses;
            // Each word is read and written with the same size, so that the processor can forward stores to
            // loads.
            if self.flags & SETS_CLASS != 0 {
                let old = load16(window, IP);
                let [version, class] = old.to_ne_bytes();
                let new = u16::from_ne_bytes([version, class & !self.class_mask | self.class]);
                store16(window, IP, new);
                change += u64::from(!old) + u64::from(new);
            }
            if self.flags & (SETS_TTL | DECREMENTS_TTL) != 0 {
                const TTL: usize = IP + ipv4::offset::TTL;
                let old = load16(window, TTL);
                let [ttl, proto] = old.to_ne_bytes();
                let ttl = match self.flags & SETS_TTL {
                    0 => ttl.wrapping_sub(1),
                    _ => self.ttl,
                };
                let new = u16::from_ne_bytes([ttl, proto]);
                store16(window, TTL, new);
                change += u64::from(!old) + u64::from(new);
            }
            const CHECKSUM: usize = IP + ipv4::offset::CHECKSUM;
            let checksum = updated(load16(window, CHECKSUM), change);
            store16(window, CHECKSUM, checksum);
        }
        if self.flags & TRANSPORT_CHECKED != 0 {
            let mut change = addresses;
            if self.flags & SETS_PORT != 0 {
                let old = load32(window, TRANSPORT);
                let new = old & !self.ports_mask | self.ports;
                window[TRANSPORT..TRANSPORT + 4].copy_from_slice(&new.to_ne_bytes());
                change += u64::from(!old & self.ports_mask) + u64::from(self.ports);
            }
            // Traffic mixes TCP and UDP packets, so a branch on the protocol would often be mispredicted.
            let is_udp = window[IP + ipv4::offset::PROTO] == IpProto::UDP.0;
            let at = if is_udp {
                TRANSPORT + udp::offset::CHECKSUM
            } else {
                TRANSPORT + tcp::offset::CHECKSUM
            };
            let old = load16(window, at);
            let new = updated(old, change);
            // A UDP checksum of zero means none, and stays zero. A checksum that is computed as zero is sent
            // as 0xffff (RFC 768).
            let udp = if old == 0 {
                0
            } else {
                new | u16::from(new == 0).wrapping_neg()
            };
            store16(window, at, if is_udp { udp } else { new });
        }
    }
}

/// Returns true if a packet has the IPv4 layout of [`HeaderRewrite`]. `window` holds its bytes from the EtherType on,
/// `size` is its size in bytes from the IPv4 header on.
#[inline(always)]
fn is_of_layout(window: &[u8; WINDOW_SIZE], size: usize) -> bool {
    /// EtherType IPv4, version 4, five words of header.
    const PLAIN_IPV4: u32 = (EtherType::IPV4.0 as u32) << 8 | 0x45;
    let big_endian = |at| u16::from_be(load16(window, at));
    let fragment = big_endian(IP + ipv4::offset::FRAGMENT);
    let total_size = usize::from(big_endian(IP + ipv4::offset::TOTAL_SIZE));
    let proto = window[IP + ipv4::offset::PROTO];
    let (is_udp, is_tcp) = (proto == IpProto::UDP.0, proto == IpProto::TCP.0);
    let udp_size = usize::from(big_endian(TRANSPORT + udp::offset::SIZE));
    let tcp_size = usize::from(window[TRANSPORT + tcp::offset::DATA_OFFSET] >> 4) * 4;
    let (least, said) = if is_udp {
        (udp::SIZE, udp_size)
    } else {
        (tcp::MIN_SIZE, tcp_size)
    };
    (u32::from_be(load32(window, 0)) >> 8 == PLAIN_IPV4)
        & (fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET) == 0)
        & (is_udp | is_tcp)
        & (said >= least)
        & (ipv4::MIN_SIZE + said <= total_size)
        & (total_size <= size)
}

/// Returns a checksum after a change, all in the byte order of the packet: RFC 1624, equation 3.
#[inline(always)]
const fn updated(checksum: u16, change: u64) -> u16 {
    // `change` is the sum of at most a dozen 32-bit words. The first two folds leave 17 bits; the last two
    // add the carries.
    let sum = change + !checksum as u64;
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    !(sum as u16)
}

/// Returns the sum of the two halves of a word.
#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word >> 32) + (word & 0xffff_ffff)
}

/// Returns the word at `at` in one load. Otherwise the compiler assembles words that share bytes from single
/// bytes.
#[inline(always)]
fn load16(bytes: &[u8; WINDOW_SIZE], at: usize) -> u16 {
    word(bytes, at).map_or(0, u16::from_ne_bytes)
}

#[inline(always)]
fn load32(bytes: &[u8; WINDOW_SIZE], at: usize) -> u32 {
    word(bytes, at).map_or(0, u32::from_ne_bytes)
}

#[inline(always)]
fn load64(bytes: &[u8; WINDOW_SIZE], at: usize) -> u64 {
    word(bytes, at).map_or(0, u64::from_ne_bytes)
}

#[inline(always)]
fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline(always)]
fn store16(bytes: &mut [u8; WINDOW_SIZE], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}
