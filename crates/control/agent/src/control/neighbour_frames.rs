//! Frames of ARP (RFC 826) and of neighbour discovery (RFC 4861): construction of requests and answers, and
//! parsing of received frames.

use std::net::{IpAddr, Ipv6Addr};

use millrace_types::Mac;
use millrace_wire::icmpv6::{NEIGHBOR_ADVERT, NEIGHBOR_SOLICIT, NdRepr};
use millrace_wire::{Builder, Dscp, Ecn, EtherType, FlowLabel, IpProto, arp, ethernet, icmpv6, ipv6};

/// Size of the shortest frame that every link takes, in bytes without FCS.
const FRAME_MIN: usize = 60;
/// The flags S and O: the advertisement answers a solicitation, and overrides what is known (RFC 4861, section 4.4).
const SOLICITED_OVERRIDE: u32 = 0x6000_0000;

/// An ARP message, or a neighbour solicitation or advertisement.
pub(super) struct NeighbourMessage {
    /// True for a request, false for an answer.
    pub(super) is_request: bool,
    /// The address of the switch: the target of a request, or the destination of an answer.
    pub(super) local: IpAddr,
    /// The address of the neighbour.
    pub(super) remote: IpAddr,
    /// The MAC address of the neighbour.
    pub(super) mac: Mac,
}

/// Returns the request for the MAC address of `target`; `None` if the addresses are of different families.
pub(super) fn request(mac: Mac, local: IpAddr, target: IpAddr) -> Option<Vec<u8>> {
    match (local, target) {
        (IpAddr::V4(local), IpAddr::V4(target)) => {
            let request = arp::Repr {
                op: arp::REQUEST,
                sha: mac,
                spa: local,
                tha: Mac::ZERO,
                tpa: target,
            };
            Some(
                Builder::ethernet(Mac([0xff; 6]), mac)
                    .arp(request)
                    .pad_to(FRAME_MIN)
                    .build(),
            )
        }
        (IpAddr::V6(local), IpAddr::V6(target)) => {
            let [.., b13, b14, b15] = target.octets();
            // The solicited-node address (RFC 4291, section 2.7.1).
            let group = Ipv6Addr::new(
                0xff02,
                0,
                0,
                0,
                0,
                1,
                0xff00 | u16::from(b13),
                u16::from_be_bytes([b14, b15]),
            );
            let request = NdRepr {
                kind: NEIGHBOR_SOLICIT,
                flags: 0,
                target,
                lla: Some(mac),
            };
            let group_mac = Mac([0x33, 0x33, 0xff, b13, b14, b15]);
            Some(discovery(group_mac, mac, local, group, request))
        }
        _ => None,
    }
}

/// Returns the answer of the switch to a request; `mac` is the MAC address of the switch.
pub(super) fn answer(mac: Mac, request: &NeighbourMessage) -> Option<Vec<u8>> {
    match (request.local, request.remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => {
            let answer = arp::Repr {
                op: arp::REPLY,
                sha: mac,
                spa: local,
                tha: request.mac,
                tpa: remote,
            };
            Some(
                Builder::ethernet(request.mac, mac)
                    .arp(answer)
                    .pad_to(FRAME_MIN)
                    .build(),
            )
        }
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let answer = NdRepr {
                kind: NEIGHBOR_ADVERT,
                flags: SOLICITED_OVERRIDE,
                target: local,
                lla: Some(mac),
            };
            Some(discovery(request.mac, mac, local, remote, answer))
        }
        _ => None,
    }
}

fn discovery(dst_mac: Mac, src_mac: Mac, src: Ipv6Addr, dst: Ipv6Addr, message: NdRepr) -> Vec<u8> {
    let header = ipv6::Repr {
        src,
        dst,
        next_header: IpProto::ICMPV6,
        dscp: Dscp::default(),
        ecn: Ecn::default(),
        flow_label: FlowLabel::default(),
        // Receivers discard a packet with less than 255, because a router has forwarded it (RFC 4861, section
        // 7.1).
        hop_limit: 255,
        // The builder sets the payload size.
        payload_size: 0,
    };
    Builder::ethernet(dst_mac, src_mac)
        .ipv6_with(header)
        .neighbor(message)
        .build()
}

/// Parses a frame of ARP or neighbour discovery; `None` for other frames, and for those that RFC 826 or RFC 4861 calls
/// invalid.
pub(super) fn parse(frame: &[u8]) -> Option<NeighbourMessage> {
    let (header, rest) = frame.split_first_chunk::<{ ethernet::SIZE }>()?;
    let ether_type = EtherType(u16::from_be_bytes([header[12], header[13]]));
    if ether_type == EtherType::ARP {
        let message = arp::Repr::parse(&arp::View::new(rest).ok()?);
        return Some(NeighbourMessage {
            is_request: message.op == arp::REQUEST,
            local: message.tpa.into(),
            remote: message.spa.into(),
            mac: message.sha,
        });
    }
    let ip = ipv6::View::new(rest)
        .ok()
        .filter(|_| ether_type == EtherType::IPV6)?;
    if ip.hop_limit() != 255 || ip.next_header() != IpProto::ICMPV6 {
        return None;
    }
    let icmp = icmpv6::View::new(ip.payload()).ok()?;
    let is_valid = icmp.code() == 0 && icmp.checksum_is_right(&ip.pseudo());
    let message = NdRepr::parse(&icmp.neighbor().ok().filter(|_| is_valid)?);
    let is_request = message.kind == NEIGHBOR_SOLICIT;
    let [.., s0, s1, s2, s3, s4, s5, _, _] = *header;
    // A sender that checks an address for duplicates does not own the address yet (RFC 4862, section 5.4.2).
    let sender = Some(ip.src()).filter(|src| !src.is_unspecified());
    Some(NeighbourMessage {
        is_request,
        local: if is_request { message.target } else { ip.dst() }.into(),
        remote: if is_request { sender? } else { message.target }.into(),
        mac: message.lla.unwrap_or(Mac([s0, s1, s2, s3, s4, s5])),
    })
}
