//! Packets that notify the two ends of a connection about a rejected packet: TCP resets (RFC 9293, section 3.10.7) and
//! ICMP errors (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
//!
//! The answer repeats the link header of the rejected packet, VLAN tags included. Packets inside tunnels, and those from or to
//! groups, are dropped without an answer.

use millrace_wire::checksum::Sum;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags;
use millrace_wire::{Depth, Fragment, IpProto, L3, L4, Layers, ipv4};

/// Size limit of an answer: a link header with tags, and an ICMP error of 576 bytes (RFC 1812, section 4.3.2.3).
pub(crate) const SIZE_MAX: usize = 640;
/// Bytes of a rejected packet that an ICMP error quotes.
const QUOTED_V4: usize = 548;
const QUOTED_V6: usize = 512;

const TTL: u8 = 64;
/// Destination unreachable, communication administratively prohibited (RFC 1812, section 5.2.7.1).
const ICMP_PROHIBITED: [u8; 2] = [3, 13];
/// The same in ICMPv6 (RFC 4443, section 3.1).
const ICMPV6_PROHIBITED: [u8; 2] = [1, 1];

/// The end to which the answer to a rejected packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}

/// The frame of an answer.
pub(crate) type Answer = arrayvec::ArrayVec<u8, SIZE_MAX>;

/// Returns the answer to one end of a rejected packet, or `None` if no answer may be sent. The packet has
/// `size` bytes, and `frame` is its first segment.
pub(crate) fn answer(frame: &[u8], size: usize, to: To) -> Option<Answer> {
    let layers = Layers::parse_head(frame, size, Depth::L4);
    if layers.fragment() == Fragment::Later {
        return None;
    }
    match (layers.l4(), to) {
        (L4::Tcp, _) => reset(frame, size, &layers, to),
        // An ICMP error goes to the sender only, and never answers an ICMP error.
        (L4::Icmpv4 | L4::Icmpv6, _) | (_, To::Destination) => None,
        (_, To::Source) => unreachable(frame, &layers),
    }
}

/// Returns the addresses of a packet, for checksums.
fn pseudo(frame: &[u8], layers: &Layers) -> Option<Pseudo> {
    let ip = frame.get(layers.l3_offset()..)?;
    match layers.l3() {
        L3::Ipv4 => Some(Pseudo::V4 {
            src: (*ip.get(12..)?.first_chunk::<4>()?).into(),
            dst: (*ip.get(16..)?.first_chunk::<4>()?).into(),
        }),
        L3::Ipv6 => Some(Pseudo::V6 {
            src: (*ip.get(8..)?.first_chunk::<16>()?).into(),
            dst: (*ip.get(24..)?.first_chunk::<16>()?).into(),
        }),
        _ => None,
    }
}

/// Returns the addresses of a packet in the other direction.
fn reversed(pseudo: Pseudo) -> Pseudo {
    match pseudo {
        Pseudo::V4 { src, dst } => Pseudo::V4 { src: dst, dst: src },
        Pseudo::V6 { src, dst } => Pseudo::V6 { src: dst, dst: src },
    }
}

/// Returns whether the sender and the receiver of a packet are each a single host. Other packets get no
/// answer (RFC 1122, sections 3.2.2 and 4.2.3.10; RFC 4443, section 2.4).
fn is_unicast(pseudo: Pseudo) -> bool {
    match pseudo {
        Pseudo::V4 { src, dst } => {
            let is_one = |address: core::net::Ipv4Addr| {
                !(address.is_multicast()
                    || address.is_broadcast()
                    || address.is_unspecified()
                    || address.is_loopback())
            };
            is_one(src) && is_one(dst)
        }
        Pseudo::V6 { src, dst } => {
            !(src.is_multicast() || src.is_unspecified() || src.is_loopback() || dst.is_multicast())
        }
    }
}

/// Appends the link header of a frame, with the MAC addresses exchanged if the answer goes back, and an IP header for `size`
/// bytes from the source to the destination of `pseudo`.
fn headers(
    out: &mut Answer,
    frame: &[u8],
    layers: &Layers,
    is_back: bool,
    pseudo: Pseudo,
    proto: IpProto,
    size: usize,
) -> Option<()> {
    let link = frame.get(..layers.l3_offset())?;
    out.try_extend_from_slice(link).ok()?;
    if is_back {
        let (to, from) = (*link.first_chunk::<6>()?, *link.get(6..)?.first_chunk::<6>()?);
        out.get_mut(..6)?.copy_from_slice(&from);
        out.get_mut(6..12)?.copy_from_slice(&to);
    }
    match pseudo {
        Pseudo::V4 { src, dst } => {
            let total = ((ipv4::MIN_SIZE + size) as u16).to_be_bytes();
            let mut header = [0; ipv4::MIN_SIZE];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&total);
            // Don't fragment: the identification has no meaning (RFC 6864).
            header[6] = 0x40;
            header[8] = TTL;
            header[9] = proto.0;
            header[12..16].copy_from_slice(&src.octets());
            header[16..].copy_from_slice(&dst.octets());
            let checksum = ipv4::header_checksum(&header, &[]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            out.try_extend_from_slice(&header).ok()
        }
        Pseudo::V6 { src, dst } => {
            let mut header = [0; 40];
            header[0] = 0x60;
            header[4..6].copy_from_slice(&(size as u16).to_be_bytes());
            header[6] = proto.0;
            header[7] = TTL;
            header[8..24].copy_from_slice(&src.octets());
            header[24..].copy_from_slice(&dst.octets());
            out.try_extend_from_slice(&header).ok()
        }
    }
}

/// Returns a reset for one end of the TCP connection of a rejected packet of `size` bytes; `None` if the packet is
/// itself a reset, or an address is not a single host.
fn reset(frame: &[u8], size: usize, layers: &Layers, to: To) -> Option<Answer> {
    const SIZE: usize = 20;
    let segment = frame.get(layers.l4_offset()..)?;
    let header = segment.first_chunk::<SIZE>()?;
    let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, bits, ..] = *header;
    let bits = u16::from(bits);
    if bits & flags::RST != 0 {
        return None;
    }
    let pseudo = pseudo(frame, layers).filter(|pseudo| is_unicast(*pseudo))?;
    let (seq, ack) = (
        u32::from_be_bytes([q0, q1, q2, q3]),
        u32::from_be_bytes([a0, a1, a2, a3]),
    );
    let end = ip_end(frame, layers)?.min(size);
    let data = end.saturating_sub(layers.l4_offset() + usize::from(offset >> 4) * 4) as u32;
    let controls = u32::from(bits & flags::SYN != 0) + u32::from(bits & flags::FIN != 0);
    let next = seq.wrapping_add(data).wrapping_add(controls);
    let (ends, ports, seq, ack, bits) = match to {
        To::Source => {
            // An end in a synchronised state accepts the reset by its sequence number, an end in SYN-SENT by its acknowledgment.
            let (seq, bits) = match bits & flags::ACK != 0 {
                true => (ack, flags::RST | flags::ACK),
                false => (0, flags::RST | flags::ACK),
            };
            (reversed(pseudo), [d0, d1, s0, s1], seq, next, bits)
        }
        // The receiver has got everything before this segment, which is dropped.
        To::Destination => match bits & flags::ACK != 0 {
            true => (pseudo, [s0, s1, d0, d1], seq, ack, flags::RST | flags::ACK),
            false => (pseudo, [s0, s1, d0, d1], seq, 0, flags::RST),
        },
    };
    let mut tcp = [0; SIZE];
    tcp[..4].copy_from_slice(&ports);
    tcp[4..8].copy_from_slice(&seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&ack.to_be_bytes());
    tcp[12] = (SIZE as u8 / 4) << 4;
    tcp[13] = bits as u8;
    let sum = ends.sum(IpProto::TCP, SIZE).add_bytes(&tcp);
    tcp[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
    let mut out = Answer::new();
    headers(
        &mut out,
        frame,
        layers,
        to == To::Source,
        ends,
        IpProto::TCP,
        SIZE,
    )?;
    out.try_extend_from_slice(&tcp).ok()?;
    Some(out)
}

/// Returns the offset in a frame at which the IP packet ends by the length in its header. Padding may follow, and the first
/// segment may end before this offset.
fn ip_end(frame: &[u8], layers: &Layers) -> Option<usize> {
    let start = layers.l3_offset();
    let ip = frame.get(start..)?;
    let size = match layers.l3() {
        L3::Ipv4 => u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]).into(),
        L3::Ipv6 => 40 + usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?])),
        _ => return None,
    };
    Some(start + size)
}

/// Returns an ICMP error for the sender.
fn unreachable(frame: &[u8], layers: &Layers) -> Option<Answer> {
    const HEADER: usize = 8;
    let pseudo = pseudo(frame, layers).filter(|pseudo| is_unicast(*pseudo))?;
    let packet = frame.get(layers.l3_offset()..ip_end(frame, layers)?.min(frame.len()))?;
    let (proto, [kind, code], most) = match pseudo {
        Pseudo::V4 { .. } => (IpProto::ICMPV4, ICMP_PROHIBITED, QUOTED_V4),
        Pseudo::V6 { .. } => (IpProto::ICMPV6, ICMPV6_PROHIBITED, QUOTED_V6),
    };
    let quoted = &packet[..packet.len().min(most)];
    let ends = reversed(pseudo);
    let mut header = [kind, code, 0, 0, 0, 0, 0, 0];
    let size = HEADER + quoted.len();
    let sum = match pseudo {
        Pseudo::V4 { .. } => Sum::of(&header),
        Pseudo::V6 { .. } => ends.sum(proto, size).add_bytes(&header),
    };
    header[2..4].copy_from_slice(&sum.add_bytes(quoted).checksum().to_be_bytes());
    let mut out = Answer::new();
    headers(&mut out, frame, layers, true, ends, proto, size)?;
    out.try_extend_from_slice(&header).ok()?;
    out.try_extend_from_slice(quoted).ok()?;
    Some(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use millrace_types::Mac;
    use millrace_wire::tcp::flags::{ACK, PSH, RST, SYN};
    use millrace_wire::{Builder, icmpv4, tcp};

    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn segment(bits: u16, data: &[u8]) -> Vec<u8> {
        let repr = tcp::Repr {
            src: 1000,
            dst: 80,
            seq: 100,
            ack: 500,
            flags: bits,
            window: 1000,
            urgent: 0,
            options: tcp::Options::default(),
        };
        Builder::ethernet(B, A)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .tcp(repr)
            .payload(data)
            .build()
    }

    fn parse(frame: &[u8]) -> (tcp::View<'_>, Pseudo) {
        let ip = ipv4::View::new(&frame[14..]).unwrap();
        assert!(ip.checksum_is_right());
        let (src, dst) = (ip.src(), ip.dst());
        let tcp = tcp::View::new(ip.payload()).unwrap();
        (tcp, Pseudo::V4 { src, dst })
    }

    /// Returns the answer to the sender of a frame.
    fn of(frame: &[u8]) -> Option<Answer> {
        answer(frame, frame.len(), To::Source)
    }

    #[test]
    fn resets_are_what_both_ends_accept() {
        let rejected = segment(ACK | PSH, b"attack");
        let back = answer(&rejected, rejected.len(), To::Source).unwrap();
        let (tcp, pseudo) = parse(&back);
        assert!(tcp.checksum_is_right(&pseudo));
        assert_eq!((tcp.src(), tcp.dst()), (80, 1000));
        assert_eq!((tcp.seq(), tcp.ack(), tcp.flags()), (500, 106, RST | ACK));
        assert_eq!((&back[..6], &back[6..12]), (&A.0[..], &B.0[..]));
        let forth = answer(&rejected, rejected.len(), To::Destination).unwrap();
        let (tcp, pseudo) = parse(&forth);
        assert!(tcp.checksum_is_right(&pseudo));
        assert_eq!((tcp.src(), tcp.dst()), (1000, 80));
        assert_eq!((tcp.seq(), tcp.ack(), tcp.flags()), (100, 500, RST | ACK));
        assert_eq!(&forth[..12], &rejected[..12]);
    }

    #[test]
    fn a_syn_is_refused_as_by_a_closed_port() {
        let back = of(&segment(SYN, &[])).unwrap();
        let (tcp, _) = parse(&back);
        assert_eq!((tcp.seq(), tcp.ack(), tcp.flags()), (0, 101, RST | ACK));
        assert_eq!(of(&segment(RST, &[])), None);
    }

    #[test]
    fn the_size_of_all_segments_decides_and_groups_get_no_reset() {
        let rejected = segment(ACK, &[1; 100]);
        let whole = answer(&rejected, rejected.len(), To::Source);
        assert!(whole.is_some());
        assert_eq!(answer(&rejected[..54], rejected.len(), To::Source), whole);
        let mut from_group = segment(ACK, b"x");
        from_group[26..30].copy_from_slice(&[224, 0, 0, 1]);
        assert_eq!(of(&from_group), None);
        let mut datagram = Builder::ethernet(B, A)
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(1000, 53)
            .payload(&[7; 1000])
            .build();
        let size = datagram.len();
        datagram.truncate(100);
        let back = answer(&datagram, size, To::Source).unwrap();
        assert_eq!(&back[42..], &datagram[14..]);
    }

    #[test]
    fn tags_are_repeated() {
        let mut rejected = segment(ACK, b"x");
        rejected.splice(12..12, [0x81, 0, 0, 5]);
        let back = answer(&rejected, rejected.len(), To::Source).unwrap();
        assert_eq!(&back[12..18], &[0x81, 0, 0, 5, 8, 0]);
    }

    #[test]
    fn other_packets_are_answered_by_icmp_to_the_sender_but_not_errors_and_not_to_groups() {
        let datagram = |destination: [u8; 4]| {
            Builder::ethernet(B, A)
                .ipv4([10, 0, 0, 1], destination)
                .udp(1000, 53)
                .payload(&[7; 1000])
                .build()
        };
        let rejected = datagram([10, 0, 0, 2]);
        let back = answer(&rejected, rejected.len(), To::Source).unwrap();
        let ip = ipv4::View::new(&back[14..]).unwrap();
        let icmp = icmpv4::View::new(ip.payload()).unwrap();
        assert_eq!([icmp.kind(), icmp.code()], ICMP_PROHIBITED);
        assert_eq!(ip.payload().len(), 8 + QUOTED_V4);
        assert_eq!(Sum::of(ip.payload()).checksum(), 0);
        assert_eq!(&icmp.payload()[..28], &rejected[14..42]);
        assert_eq!(answer(&rejected, rejected.len(), To::Destination), None);
        assert_eq!(of(&back), None);
        assert_eq!(of(&datagram([224, 0, 0, 1])), None);
    }
}
