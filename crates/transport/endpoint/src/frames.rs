//! Complete ARP, ND and ICMP frames, built from their values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::ip::Pseudo;
use millrace_wire::{Dscp, Ecn, EtherType, FlowLabel, IpProto, arp, icmpv4, icmpv6, ipv6};

use crate::endpoint::Endpoint;
use crate::head::{HOP_LIMIT, ipv4_repr, link_header};
use crate::limits::OUT_MAX;

/// The hop limit of neighbour discovery: a packet that a router forwarded has less (RFC 4861, section 3.1).
pub(crate) const ND_HOP_LIMIT: u8 = 255;

/// Returns the MAC address of an IPv6 group (RFC 2464, section 7).
pub(crate) fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

impl Endpoint {
    /// Queues a frame with this payload. Returns false if the queue is full.
    pub(crate) fn push_frame(&mut self, dst: Mac, ether_type: EtherType, payload: &[u8]) -> bool {
        if self.out.len() >= OUT_MAX {
            return false;
        }
        let mut frame = link_header(dst, self.config.mac, self.config.vlan, ether_type);
        frame.extend_from_slice(payload);
        self.out.push_back(frame);
        true
    }

    pub(crate) fn push_arp(&mut self, dst: Mac, op: u16, spa: Ipv4Addr, tha: Mac, tpa: Ipv4Addr) -> bool {
        let sha = self.config.mac;
        let packet = arp::Repr {
            op,
            sha,
            spa,
            tha,
            tpa,
        };
        self.push_frame(dst, EtherType::ARP, &packet.to_bytes())
    }

    /// Queues a message of neighbour discovery.
    pub(crate) fn push_nd(
        &mut self,
        mac: Mac,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        message: &icmpv6::NdRepr,
    ) -> bool {
        let mut body = Vec::new();
        message.emit(&Pseudo::V6 { src, dst }, &mut body);
        self.push_ipv6(mac, (src, dst), ND_HOP_LIMIT, &body)
    }

    /// Queues an ICMP message; the addresses have one IP version.
    pub(crate) fn push_icmp(
        &mut self,
        mac: Mac,
        (src, dst): (IpAddr, IpAddr),
        (kind, code): (u8, u8),
        rest: [u8; 4],
        payload: &[u8],
    ) -> bool {
        let mut message = Vec::with_capacity(icmpv4::SIZE + payload.len());
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                icmpv4::Repr {
                    kind,
                    code,
                    rest_of_header: rest,
                }
                .emit(payload, &mut message);
                let mut packet = Vec::with_capacity(20 + message.len());
                ipv4_repr(src, dst, IpProto::ICMPV4, message.len()).emit(&mut packet);
                packet.extend_from_slice(&message);
                self.push_frame(mac, EtherType::IPV4, &packet)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let body = [&rest[..], payload].concat();
                icmpv6::Repr { kind, code }.emit(&Pseudo::V6 { src, dst }, &body, &mut message);
                self.push_ipv6(mac, (src, dst), HOP_LIMIT, &message)
            }
            _ => false,
        }
    }

    fn push_ipv6(&mut self, mac: Mac, (src, dst): (Ipv6Addr, Ipv6Addr), hop_limit: u8, body: &[u8]) -> bool {
        let header = ipv6::Repr {
            src,
            dst,
            next_header: IpProto::ICMPV6,
            dscp: Dscp::default(),
            ecn: Ecn::default(),
            flow_label: FlowLabel::default(),
            hop_limit,
            payload_size: u16::try_from(body.len()).unwrap_or(u16::MAX),
        };
        let packet = [&header.to_bytes()[..], body].concat();
        self.push_frame(mac, EtherType::IPV6, &packet)
    }
}
