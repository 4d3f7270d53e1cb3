//! The flow of a packet: two endpoints and a protocol, for IPv4 and IPv6.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::buffer::Buffer;
use millrace_wire::{Depth, Fragment, IpProto, L3, L4, Layers};

/// An endpoint: an address and a port. IPv4 is mapped into IPv6 (RFC 4291, section 2.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Endpoint {
    pub address: [u8; 16],
    /// The port, or the identifier of an ICMP echo message; 0 for other protocols.
    pub port: u16,
}

impl Hash for Endpoint {
    /// Hashes words, which keyed hashes fold at once.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_address(state);
        state.write_u16(self.port);
    }
}

impl Endpoint {
    #[inline]
    fn hash_address<H: Hasher>(&self, state: &mut H) {
        let address = u128::from_ne_bytes(self.address);
        state.write_u64(address as u64);
        state.write_u64((address >> 64) as u64);
    }

    /// Returns the address in its own family.
    pub fn ip(&self) -> IpAddr {
        let v6 = Ipv6Addr::from(self.address);
        v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
    }
}

/// A flow in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowId {
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// The IP protocol number.
    pub proto: u8,
}

impl Hash for FlowId {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash_with(0, state);
    }
}

impl FlowId {
    /// Hashes the flow and 24 bits of a larger key in five words: each word is a multiplication of a keyed hash.
    ///
    /// ```text
    ///  63     40 39    32 31              16 15         0
    /// +---------+--------+------------------+-------------+
    /// |  more   | proto  | destination port | source port |   after the four words of the addresses
    /// +---------+--------+------------------+-------------+
    /// ```
    #[inline]
    pub fn hash_with<H: Hasher>(&self, more: u32, state: &mut H) {
        self.source.hash_address(state);
        self.destination.hash_address(state);
        let ports = u64::from(self.source.port) | u64::from(self.destination.port) << 16;
        state.write_u64(u64::from(more) << 40 | u64::from(self.proto) << 32 | ports);
    }
}

/// The flow of a packet, and the headers that a stateful function needs.
#[derive(Clone, Copy, Debug)]
pub struct FlowPacket {
    /// The flow in the direction of the packet.
    pub id: FlowId,
    /// The offsets of the headers.
    pub layers: Layers,
    /// The TCP flags, or 0 for other protocols.
    pub tcp_flags: u8,
    /// The packet is a fragment other than the first, so its ports are unknown.
    pub is_later_fragment: bool,
    /// The type of ICMP or ICMPv6, or 0 for other protocols.
    pub icmp_type: u8,
    /// The packet is IPv6.
    pub is_v6: bool,
}

/// TCP flags (RFC 9293, section 3.1).
pub mod flag {
    /// The sender has finished.
    pub const FIN: u8 = 1;
    /// The sender opens a connection.
    pub const SYN: u8 = 2;
    /// The connection is reset.
    pub const RST: u8 = 4;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

impl FlowId {
    /// Returns the flow in the other direction.
    pub fn reversed(&self) -> FlowId {
        FlowId {
            source: self.destination,
            destination: self.source,
            proto: self.proto,
        }
    }

    /// Returns the flow id that both directions share, and whether this flow is the reverse of it.
    pub fn canonical(&self) -> (FlowId, bool) {
        match self.source <= self.destination {
            true => (*self, false),
            false => (self.reversed(), true),
        }
    }
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..)?.first_chunk::<N>().copied()
}

fn mapped(address: [u8; 4]) -> [u8; 16] {
    Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

impl FlowPacket {
    /// Returns the flow of a packet, or `None` if the packet is not IP.
    #[inline]
    pub fn of(packet: &dyn Buffer) -> Option<FlowPacket> {
        let head = packet.head();
        let layers = Layers::parse_head(head, packet.len(), Depth::L4);
        let l3 = layers.l3_offset();
        let (source, destination, is_v6) = match layers.l3() {
            L3::Ipv4 => (
                mapped(bytes(head, l3 + 12)?),
                mapped(bytes(head, l3 + 16)?),
                false,
            ),
            L3::Ipv6 => (bytes(head, l3 + 8)?, bytes(head, l3 + 24)?, true),
            L3::None | L3::Arp | L3::Mpls | L3::Pbb => return None,
        };
        let l4 = layers.l4_offset();
        let (mut ports, mut tcp_flags, mut icmp_type) = ([0; 2], 0, 0);
        match layers.l4() {
            L4::Tcp | L4::Udp | L4::Sctp => {
                let raw: [u8; 4] = bytes(head, l4)?;
                ports = [
                    u16::from_be_bytes([raw[0], raw[1]]),
                    u16::from_be_bytes([raw[2], raw[3]]),
                ];
                if layers.l4() == L4::Tcp {
                    tcp_flags = bytes::<1>(head, l4 + 13)?[0];
                }
            }
            L4::Icmpv4 | L4::Icmpv6 => {
                icmp_type = bytes::<1>(head, l4)?[0];
                // The identifier of an echo message serves as both ports.
                if matches!(
                    (layers.l4(), icmp_type),
                    (L4::Icmpv4, 0 | 8) | (L4::Icmpv6, 128 | 129)
                ) {
                    let identifier = bytes::<2>(head, l4 + 4).unwrap_or_default();
                    ports = [u16::from_be_bytes(identifier); 2];
                }
            }
            L4::None => {}
        }
        Some(FlowPacket {
            id: FlowId {
                source: Endpoint {
                    address: source,
                    port: ports[0],
                },
                destination: Endpoint {
                    address: destination,
                    port: ports[1],
                },
                proto: layers.ip_proto().0,
            },
            layers,
            tcp_flags,
            is_later_fragment: layers.fragment() == Fragment::Later,
            icmp_type,
            is_v6,
        })
    }

    /// Returns whether the packet is TCP.
    pub fn is_tcp(&self) -> bool {
        self.layers.l4() == L4::Tcp
    }

    /// Returns the flow of the packet inside an ICMP error (RFC 792, RFC 4443), or `None` if this is no error or the packet
    /// inside is too short.
    pub fn cause(&self, packet: &dyn Buffer) -> Option<FlowId> {
        let head = packet.head();
        let inner = self.layers.l4_offset() + 8;
        let (source, destination, proto, l4) = match (self.layers.l4(), self.icmp_type) {
            (L4::Icmpv4, 3 | 4 | 5 | 11 | 12) => {
                let header: [u8; 20] = bytes(head, inner)?;
                let size = usize::from(header[0] & 15) * 4;
                if header[0] >> 4 != 4 || size < 20 {
                    return None;
                }
                let ends = (mapped(bytes(head, inner + 12)?), mapped(bytes(head, inner + 16)?));
                (ends.0, ends.1, header[9], inner + size)
            }
            (L4::Icmpv6, 1..=4) => {
                let header: [u8; 40] = bytes(head, inner)?;
                if header[0] >> 4 != 6 {
                    return None;
                }
                (
                    bytes(head, inner + 8)?,
                    bytes(head, inner + 24)?,
                    header[6],
                    inner + 40,
                )
            }
            _ => return None,
        };
        let ports: [u8; 4] = match IpProto(proto) {
            IpProto::TCP | IpProto::UDP | IpProto::SCTP => bytes(head, l4)?,
            IpProto::ICMPV4 | IpProto::ICMPV6 => {
                let identifier: [u8; 2] = bytes(head, l4 + 4)?;
                [identifier[0], identifier[1], identifier[0], identifier[1]]
            }
            _ => [0; 4],
        };
        Some(FlowId {
            source: Endpoint {
                address: source,
                port: u16::from_be_bytes([ports[0], ports[1]]),
            },
            destination: Endpoint {
                address: destination,
                port: u16::from_be_bytes([ports[2], ports[3]]),
            },
            proto,
        })
    }
}
