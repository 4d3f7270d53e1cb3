//! The header fields of a generated packet, and the frame that is built from them.

use std::net::{Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::{Builder, Dscp, Ecn, IpProto, ethernet, ipv4, ipv6, tcp, udp, vlan};

use crate::random::Random;

/// The source MAC address of all frames.
pub const SOURCE: Mac = Mac([0x02, 0, 0, 0, 0x01, 0x01]);
/// The default destination MAC address.
pub const TARGET: Mac = Mac([0x02, 0, 0, 0, 0x02, 0x02]);

/// The protocols of generated packets.
pub(super) const ICMP: u8 = IpProto::ICMPV4.0;
pub(super) const TCP: u8 = IpProto::TCP.0;
pub(super) const UDP: u8 = IpProto::UDP.0;
/// GRE (IANA, "Protocol Numbers"), which has no ports.
pub(super) const GRE: u8 = 47;

/// The percentage of TCP among the packets with ports; the others are UDP.
const TCP_PERCENT: usize = 70;
/// The networks between which flows are: 10.0.0.0/8 and 192.168.0.0/16 (RFC 1918), and the numbers of bits of their hosts.
const CLIENTS: u32 = 0x0a00_0000;
const CLIENT_BITS: u32 = 24;
const SERVERS: u32 = 0xc0a8_0000;
const SERVER_BITS: u32 = 16;
/// The first port of clients, above the well-known ones (RFC 6335, section 6), and the number of their ports.
const CLIENT_PORT: u16 = 1024;
const CLIENT_PORTS: u16 = 60_000;
/// The size of the check sequence of a frame, which the device adds, in bytes.
const FCS_SIZE: usize = 4;

/// Returns TCP or UDP.
pub(super) fn transport(random: &mut Random) -> u8 {
    if random.percent(TCP_PERCENT) { TCP } else { UDP }
}

/// Returns true if packets of this protocol have ports here.
pub(super) fn has_ports(proto: u8) -> bool {
    matches!(proto, TCP | UDP)
}

/// Returns a port from which a client sends.
pub(super) fn client_port(random: &mut Random) -> u16 {
    CLIENT_PORT + random.word16() % CLIENT_PORTS
}

/// The header fields that a workload varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The destination MAC address.
    pub eth_dst: Mac,
    /// The VLAN identifier; `None` for an untagged frame.
    pub vlan: Option<u16>,
    /// The IPv4 source address.
    pub src: u32,
    /// The IPv4 destination address.
    pub dst: u32,
    /// The source and destination of an IPv6 packet; `None` for an IPv4 packet with the addresses above.
    pub ipv6: Option<(Ipv6Addr, Ipv6Addr)>,
    /// The IP protocol: 6 for TCP, 17 for UDP; others have no ports.
    pub proto: u8,
    /// The source port.
    pub sport: u16,
    /// The destination port.
    pub dport: u16,
}

impl Header {
    /// Returns a UDP packet of a random flow from a client to a server.
    pub(super) fn of_client(random: &mut Random) -> Header {
        Header::udp(
            CLIENTS | random.word32() >> (u32::BITS - CLIENT_BITS),
            SERVERS | random.word32() >> (u32::BITS - SERVER_BITS),
            client_port(random),
            random.word16(),
        )
    }

    /// Returns a UDP packet between the default MAC addresses.
    pub fn udp(src: u32, dst: u32, sport: u16, dport: u16) -> Header {
        Header {
            eth_dst: TARGET,
            vlan: None,
            src,
            dst,
            ipv6: None,
            proto: UDP,
            sport,
            dport,
        }
    }

    /// Returns the frame, which is `size` bytes long on the wire, without its check sequence. The frame is longer if its headers
    /// need more space.
    pub fn frame(&self, size: u16) -> Vec<u8> {
        let size = usize::from(size).saturating_sub(FCS_SIZE);
        let mut builder = Builder::ethernet(self.eth_dst, SOURCE);
        let mut headers = ethernet::SIZE + ipv4::MIN_SIZE;
        if let Some(vid) = self.vlan {
            builder = builder.vlan(vid, 0);
            headers += vlan::SIZE;
        }
        builder = match self.ipv6 {
            Some((src, dst)) => {
                headers += ipv6::SIZE - ipv4::MIN_SIZE;
                builder.ipv6(src.octets(), dst.octets())
            }
            None => builder.ipv4_with(ipv4::Repr {
                src: Ipv4Addr::from(self.src),
                dst: Ipv4Addr::from(self.dst),
                proto: IpProto(self.proto),
                dscp: Dscp::default(),
                ecn: Ecn::default(),
                ttl: 64,
                ident: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                options: ipv4::Options::default(),
                payload_size: 0,
            }),
        };
        match self.proto {
            TCP => {
                headers += tcp::MIN_SIZE;
                builder = builder.tcp(tcp::Repr {
                    src: self.sport,
                    dst: self.dport,
                    ..tcp::Repr::default()
                });
            }
            UDP => {
                headers += udp::SIZE;
                builder = builder.udp(self.sport, self.dport);
            }
            _ => {}
        }
        builder
            .payload(&vec![0; size.saturating_sub(headers)])
            .pad_to(size)
            .build()
    }
}

/// The sizes of frames on the wire in bytes, check sequence included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All frames have the same size.
    Fixed(u16),
    /// Each size has a weight.
    Mix(Vec<(usize, u16)>),
}

impl Sizes {
    /// The smallest Ethernet frame.
    pub const SMALLEST: Sizes = Sizes::Fixed(64);

    /// Returns the simple IMIX: 7 frames of 64, 4 of 594 and 1 of 1518 bytes (RFC 6985, section 4, calls it the mix in
    /// use).
    pub fn imix() -> Sizes {
        Sizes::Mix(vec![(7, 64), (4, 594), (1, 1518)])
    }

    /// Returns the size of one frame.
    pub fn pick(&self, random: &mut Random) -> u16 {
        match self {
            Sizes::Fixed(size) => *size,
            Sizes::Mix(mix) => random.weighted(mix).unwrap_or(64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{Depth, L4, Layers};

    #[test]
    fn a_smallest_frame_has_sixty_bytes_before_its_check_sequence() {
        let header = Header::udp(0x0a00_0001, 0x0a00_0002, 7, 9);
        assert_eq!(header.frame(64).len(), 60);
        assert_eq!(header.frame(1518).len(), 1514);
    }

    #[test]
    fn headers_that_do_not_fit_make_the_frame_longer() {
        let header = Header {
            proto: TCP,
            vlan: Some(5),
            ..Header::udp(1, 2, 3, 4)
        };
        assert_eq!(header.frame(10).len(), 14 + 4 + 20 + 20);
    }

    #[test]
    fn a_frame_carries_what_the_header_says() {
        for (proto, l4) in [(TCP, L4::Tcp), (UDP, L4::Udp)] {
            let header = Header {
                proto,
                ..Header::udp(0x0a00_0001, 0x0a00_0002, 7, 9)
            };
            let frame = header.frame(64);
            let layers = Layers::parse(&frame, Depth::L4);
            assert_eq!(layers.l4(), l4);
            assert_eq!(frame[26..34], [10, 0, 0, 1, 10, 0, 0, 2]);
            assert_eq!(frame[34..38], [0, 7, 0, 9]);
        }
    }

    #[test]
    fn imix_is_seven_to_four_to_one() {
        let (imix, mut random) = (Sizes::imix(), Random::new(4));
        let picks: Vec<u16> = (0..12_000).map(|_| imix.pick(&mut random)).collect();
        let share = |size| picks.iter().filter(|pick| **pick == size).count();
        assert!((6_800..7_200).contains(&share(64)));
        assert!((3_800..4_200).contains(&share(594)));
        assert!((850..1_150).contains(&share(1518)));
    }
}
