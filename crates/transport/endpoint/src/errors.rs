//! ICMP errors: those that quote our packets, which lower the path MTU or are reported, and those that we send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use millrace_types::Time;
use millrace_wire::{IpProto, icmpv4, ipv4, ipv6, udp};

use crate::counters::DropReason;
use crate::endpoint::Endpoint;
use crate::event::{Event, UnreachableReason};
use crate::limits::QUOTE_SIZE;
use crate::paths::{Label, Quotation};
use crate::receive::{IpPacket, Outcome, Received};

/// Types of ICMPv6 errors (RFC 4443, section 3).
pub(crate) const DEST_UNREACHABLE_V6: u8 = 1;
pub(crate) const PACKET_TOO_BIG: u8 = 2;
pub(crate) const TIME_EXCEEDED_V6: u8 = 3;
/// Codes of unreachable messages for a port (RFC 792; RFC 4443, section 3.1).
const PORT_V4: u8 = 3;
const PORT_V6: u8 = 4;
/// Code of an IPv4 unreachable message for a packet that must not be fragmented (RFC 1191, section 4).
const FRAGMENTATION_NEEDED: u8 = 4;

/// The fields of an own packet that an ICMP error quotes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Quoted {
    src: (IpAddr, u16),
    dst: SocketAddr,
    /// Bytes of the whole packet.
    size: usize,
    quotation: Quotation,
}

/// Returns the headers of a quoted UDP packet. The quotation may end after them.
fn parse_quoted(bytes: &[u8]) -> Option<Quoted> {
    let be16 = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (src, dst, size, label, udp): (IpAddr, IpAddr, _, _, _) = match bytes.first()? >> 4 {
        4 => {
            // The endpoint sends neither IPv4 options nor fragments: a packet with them is not its own.
            let is_ours = bytes[0] & 0xf == 5
                && bytes.get(9) == Some(&IpProto::UDP.0)
                && be16(6)? & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET) == 0;
            let address = |at: usize| Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?));
            if !is_ours {
                return None;
            }
            let size = usize::from(be16(2)?);
            (
                address(12)?.into(),
                address(16)?.into(),
                size,
                Label::Ident(be16(4)?),
                ipv4::MIN_SIZE,
            )
        }
        6 => {
            if bytes.get(6) != Some(&IpProto::UDP.0) {
                return None;
            }
            let address = |at: usize| Some(Ipv6Addr::from(*bytes.get(at..)?.first_chunk::<16>()?));
            let first = u32::from_be_bytes(*bytes.first_chunk()?);
            let size = ipv6::SIZE + usize::from(be16(4)?);
            (
                address(8)?.into(),
                address(24)?.into(),
                size,
                Label::Flow(first & 0xf_ffff),
                ipv6::SIZE,
            )
        }
        _ => return None,
    };
    Some(Quoted {
        src: (src, be16(udp)?),
        dst: SocketAddr::new(dst, be16(udp + 2)?),
        size,
        quotation: Quotation {
            label,
            udp_size: be16(udp + 4)?,
            udp_checksum: be16(udp + 6)?,
        },
    })
}

/// Returns the reason for the type and code of an error; `None`: the packet was too big.
fn reason(is_ipv4: bool, kind: u8, code: u8) -> Option<UnreachableReason> {
    use UnreachableReason as Reason;
    Some(match (is_ipv4, kind, code) {
        (true, icmpv4::UNREACHABLE, FRAGMENTATION_NEEDED) | (false, PACKET_TOO_BIG, _) => return None,
        (true, icmpv4::TIME_EXCEEDED, _) | (false, TIME_EXCEEDED_V6, _) => Reason::HopLimit,
        (true, _, 2) => Reason::Protocol,
        (true, _, PORT_V4) | (false, _, PORT_V6) => Reason::Port,
        (true, _, 9 | 10 | 13) | (false, _, 1 | 5 | 6) => Reason::Prohibited,
        (true, _, 1 | 7 | 8 | 12) | (false, _, 3) => Reason::Host,
        _ => Reason::Network,
    })
}

impl Endpoint {
    /// Handles an ICMP error whose checksum is right.
    pub(crate) fn icmp_error(
        &mut self,
        now: Time,
        (kind, code): (u8, u8),
        rest: [u8; 4],
        quoted: &[u8],
    ) -> Outcome {
        if !self.buckets.error_input.take(now) {
            return Err(DropReason::RateLimit);
        }
        let quoted = parse_quoted(quoted).ok_or(DropReason::Quotation)?;
        let to = quoted.dst;
        let is_sent = self.addresses.is_usable(quoted.src.0)
            && self.ports.contains(&quoted.src.1)
            && self.paths.has_sent(to.ip(), quoted.quotation);
        if !is_sent {
            return Err(DropReason::Quotation);
        }
        match reason(to.is_ipv4(), kind, code) {
            Some(reason) => self.push_event(Event::Unreachable { to, reason }),
            None => {
                // IPv4 has the MTU in the last two bytes (RFC 1191, section 4), IPv6 in all four.
                let reported = match to {
                    SocketAddr::V4(_) => u16::from_be_bytes([rest[2], rest[3]]),
                    SocketAddr::V6(_) => u16::try_from(u32::from_be_bytes(rest)).unwrap_or(u16::MAX),
                };
                let mtu = self.paths.lower(now, to.ip(), reported, quoted.size);
                let mtu = mtu.ok_or(DropReason::Quotation)?;
                self.push_event(Event::PathMtu { to: to.ip(), mtu });
            }
        }
        Ok(Received::Handled)
    }

    /// Tells the sender of a datagram that nobody listens at its port.
    pub(crate) fn push_port_unreachable(&mut self, now: Time, packet: &IpPacket<'_>) {
        let is_answered =
            packet.is_unicast && packet.payload.len() >= udp::SIZE && self.buckets.errors.take(now);
        if !is_answered {
            return;
        }
        let kind = match packet.src {
            IpAddr::V4(_) => (icmpv4::UNREACHABLE, PORT_V4),
            IpAddr::V6(_) => (DEST_UNREACHABLE_V6, PORT_V6),
        };
        let quote = &packet.whole[..packet.whole.len().min(QUOTE_SIZE)];
        self.push_icmp(packet.mac, (packet.dst, packet.src), kind, [0; 4], quote);
    }
}
