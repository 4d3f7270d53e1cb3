//! The ICMP error that answers a packet longer than the emulated MTU: "fragmentation needed" of ICMP (RFC 792, RFC 1191),
//! "packet too big" of ICMPv6 (RFC 4443, section 3.2).

use core::net::{Ipv4Addr, Ipv6Addr};

use millrace_wire::ip::Pseudo;
use millrace_wire::{Depth, Dscp, Ecn, FlowLabel, Fragment, IpProto, L3, Layers, icmpv4, icmpv6, ipv4, ipv6};

/// The number of bytes that an ICMP message quotes (RFC 1812, section 4.3.2.3), so that the answer has at
/// most 576 bytes.
const QUOTED_V4: usize = 548;
/// The number of bytes that an ICMPv6 message quotes (RFC 4443, section 2.4 (c)), so that the answer has at
/// most 1280 bytes.
const QUOTED_V6: usize = 1232;
/// The longest layer-2 header of a packet that gets an answer: Ethernet and eight VLAN tags.
const LAYER_2_MAX: usize = 14 + 8 * 4;
/// The largest answer in bytes.
pub const REPLY_MAX: usize = LAYER_2_MAX + 1280;
/// The TTL and the hop limit of an answer.
const TTL: u8 = 64;
/// The DSCP of an answer: precedence 6, "internetwork control" (RFC 1812, section 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 48;
/// The type of "packet too big": RFC 4443, section 3.2.
const PACKET_TOO_BIG: u8 = 2;
/// The type of a redirect: RFC 4861, section 4.5.
const REDIRECT: u8 = 137;
/// The code of "fragmentation needed and DF set": RFC 792, "Destination Unreachable Message".
const FRAGMENTATION_NEEDED: u8 = 4;

/// Replaces the contents of `reply` with the answer to the sender of `frame`, and returns true. Returns false
/// and leaves `reply` empty if the packet gets no answer.
///
/// The source address of the answer is the destination address of the packet: the path is not a router and
/// has no address. These packets get no answer:
/// * IPv4 packets without the flag DF, which a router would fragment (RFC 1191, section 3);
/// * multicasts and broadcasts, later fragments, ICMP errors and redirects, and packets whose source address
///   does not name a single host (RFC 1122, section 3.2.2; RFC 4443, section 2.4 (e)).
///
/// No memory is allocated if the capacity of `reply` is [`REPLY_MAX`].
pub fn reply(frame: &[u8], mtu: u16, reply: &mut Vec<u8>) -> bool {
    reply.clear();
    let written = write(frame, mtu, reply).is_some();
    if !written {
        reply.clear();
    }
    written
}

fn write(frame: &[u8], mtu: u16, reply: &mut Vec<u8>) -> Option<()> {
    let layers = Layers::parse(frame, Depth::L4);
    let layer_2 = frame.get(..layers.l3_offset())?;
    let (dst, src) = (layer_2.get(..6)?, layer_2.get(6..12)?);
    let is_group = (dst[0] | src[0]) & 1 != 0;
    if is_group || layer_2.len() > LAYER_2_MAX || layers.fragment() == Fragment::Later {
        return None;
    }
    // The layer-2 header of the packet with its tags, with source and destination exchanged.
    reply.extend_from_slice(src);
    reply.extend_from_slice(dst);
    reply.extend_from_slice(&layer_2[12..]);
    let packet = &frame[layer_2.len()..];
    match layers.l3() {
        L3::Ipv4 => {
            let icmp_type = frame.get(layers.l4_offset()).copied();
            write_v4(&ipv4::View::new(packet).ok()?, packet, icmp_type, mtu, reply)
        }
        L3::Ipv6 => {
            let is_icmp = layers.ip_proto() == IpProto::ICMPV6;
            let icmp_type = frame.get(layers.l4_offset()).copied();
            // Error types are below 128.
            if is_icmp && icmp_type.is_none_or(|kind| kind < icmpv6::ECHO_REQUEST || kind == REDIRECT) {
                return None;
            }
            write_v6(&ipv6::View::new(packet).ok()?, packet, mtu, reply)
        }
        _ => None,
    }
}

fn write_v4(
    view: &ipv4::View<'_>,
    packet: &[u8],
    icmp_type: Option<u8>,
    mtu: u16,
    reply: &mut Vec<u8>,
) -> Option<()> {
    // RFC 1122, section 3.2.2: destination unreachable, source quench, redirect, time exceeded, parameter problem.
    let is_error = view.proto() == IpProto::ICMPV4 && matches!(icmp_type, None | Some(3 | 4 | 5 | 11 | 12));
    let is_host = |address: Ipv4Addr| {
        let is_reserved = address.octets()[0] >= 240;
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !is_reserved
    };
    if !view.dont_fragment() || is_error || !is_host(view.src()) || !is_host(view.dst()) {
        return None;
    }
    let size = view.header_size() + view.payload().len();
    let quoted = &packet[..QUOTED_V4.min(size)];
    let header = ipv4::Repr {
        src: view.dst(),
        dst: view.src(),
        proto: IpProto::ICMPV4,
        dscp: Dscp::from_low_bits(INTERNETWORK_CONTROL),
        ecn: Ecn::default(),
        ttl: TTL,
        ident: 0,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::default(),
        payload_size: (icmpv4::SIZE + quoted.len()) as u16,
    };
    header.emit(reply);
    let [high, low] = mtu.to_be_bytes();
    let message = icmpv4::Repr {
        kind: icmpv4::UNREACHABLE,
        code: FRAGMENTATION_NEEDED,
        // RFC 1191, section 4: the last 16 bits are the MTU of the next hop.
        rest_of_header: [0, 0, high, low],
    };
    message.emit(quoted, reply);
    Some(())
}

fn write_v6(view: &ipv6::View<'_>, packet: &[u8], mtu: u16, reply: &mut Vec<u8>) -> Option<()> {
    let is_host =
        |address: Ipv6Addr| !address.is_unspecified() && !address.is_loopback() && !address.is_multicast();
    if !is_host(view.src()) || !is_host(view.dst()) {
        return None;
    }
    let size = ipv6::SIZE + view.payload().len();
    let quoted = &packet[..QUOTED_V6.min(size)];
    // Type, code, checksum, and the MTU in 32 bits.
    let mut message = [PACKET_TOO_BIG, 0, 0, 0, 0, 0, 0, 0];
    message[4..].copy_from_slice(&u32::from(mtu).to_be_bytes());
    let message_size = message.len() + quoted.len();
    let header = ipv6::Repr {
        src: view.dst(),
        dst: view.src(),
        next_header: IpProto::ICMPV6,
        dscp: Dscp::from_low_bits(INTERNETWORK_CONTROL),
        ecn: Ecn::default(),
        flow_label: FlowLabel::default(),
        hop_limit: TTL,
        payload_size: message_size as u16,
    };
    let pseudo = Pseudo::V6 {
        src: header.src,
        dst: header.dst,
    };
    let sum = pseudo.sum(IpProto::ICMPV6, message_size);
    let checksum = sum.add_bytes(&message).add_bytes(quoted).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    reply.extend_from_slice(&header.to_bytes());
    reply.extend_from_slice(&message);
    reply.extend_from_slice(quoted);
    Some(())
}

#[cfg(test)]
mod tests {
    use millrace_types::Mac;
    use millrace_wire::{Builder, L4, ipv6};

    use super::*;

    const V4: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
    const V6: [[u16; 8]; 2] = [
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1],
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2],
    ];
    /// The offset of the IP header after one VLAN tag.
    const IP: usize = 18;

    fn tagged<'a>() -> Builder<'a> {
        Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).vlan(7, 0)
    }

    fn v4<'a>([src, dst]: [[u8; 4]; 2]) -> Builder<'a> {
        tagged().ipv4(src, dst)
    }

    fn v6<'a>([src, dst]: [[u16; 8]; 2]) -> Builder<'a> {
        tagged().ipv6(src, dst)
    }

    fn udp(builder: Builder<'_>) -> Vec<u8> {
        builder.udp(1, 2).payload(&[0xab; 1400]).build()
    }

    /// Sets the flag DF.
    fn with_df(mut frame: Vec<u8>) -> Vec<u8> {
        frame[IP + 6] |= 0x40;
        frame
    }

    fn answer(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(REPLY_MAX);
        let is_written = reply(frame, mtu, &mut bytes);
        assert!(bytes.capacity() == REPLY_MAX && bytes.is_empty() != is_written);
        is_written.then_some(bytes)
    }

    #[test]
    fn the_sender_is_told_the_mtu_on_its_own_vlan() {
        for is_v6 in [false, true] {
            let frame = if is_v6 { udp(v6(V6)) } else { with_df(udp(v4(V4))) };
            let answer = answer(&frame, 1300).unwrap();
            assert_eq!(
                (&answer[..6], &answer[6..12], &answer[12..IP]),
                (&frame[6..12], &frame[..6], &frame[12..IP])
            );
            let layers = Layers::parse(&answer, Depth::L4);
            let message = &answer[layers.l4_offset()..];
            let quoted = if is_v6 {
                let view = icmpv6::View::new(message).unwrap();
                assert_eq!((layers.l4(), view.kind(), view.code()), (L4::Icmpv6, 2, 0));
                assert!(view.checksum_is_right(&ipv6::View::new(&answer[IP..]).unwrap().pseudo()));
                assert_eq!(message[4..8], 1300u32.to_be_bytes());
                assert_eq!(answer.len(), IP + 1280);
                &message[8..]
            } else {
                let view = icmpv4::View::new(message).unwrap();
                assert_eq!((layers.l4(), view.kind(), view.code()), (L4::Icmpv4, 3, 4));
                assert!(view.checksum_is_right());
                assert!(ipv4::View::new(&answer[IP..]).unwrap().checksum_is_right());
                assert_eq!(view.rest_of_header(), [0, 0, 5, 20]);
                assert_eq!(answer.len(), IP + 576);
                &message[8..]
            };
            assert_eq!(*quoted, frame[IP..IP + quoted.len()]);
        }
    }

    #[test]
    fn a_packet_that_a_router_would_fragment_and_a_later_fragment_get_no_answer() {
        assert_eq!(answer(&udp(v4(V4)), 1300), None, "no DF");
        let mut later = with_df(udp(v4(V4)));
        later[IP + 7] = 5;
        assert_eq!(answer(&later, 1300), None);
        // Next header UDP, reserved, offset 1 in units of 8 bytes, identification.
        let header = [17, 0, 0, 8, 0, 0, 0, 1];
        let later = v6(V6).extension(IpProto(44), &header).payload(&[0; 1400]).build();
        assert_eq!(answer(&later, 1300), None);
        let first = [17, 0, 0, 1, 0, 0, 0, 1];
        let first = v6(V6).extension(IpProto(44), &first).payload(&[0; 1400]).build();
        assert!(answer(&first, 1300).is_some());
    }

    #[test]
    fn icmp_errors_and_redirects_get_no_answer_and_echoes_do() {
        let payload = [0; 1400];
        for (kind, is_answered) in [
            (3, false),
            (4, false),
            (5, false),
            (11, false),
            (12, false),
            (8, true),
        ] {
            let message = icmpv4::Repr {
                kind,
                ..icmpv4::Repr::default()
            };
            let frame = with_df(v4(V4).icmpv4(message).payload(&payload).build());
            assert_eq!(answer(&frame, 1300).is_some(), is_answered, "ICMP {kind}");
        }
        for (kind, is_answered) in [(1, false), (2, false), (127, false), (137, false), (128, true)] {
            let frame = v6(V6).icmpv6(kind, 0).payload(&payload).build();
            assert_eq!(answer(&frame, 1300).is_some(), is_answered, "ICMPv6 {kind}");
        }
    }

    #[test]
    fn only_packets_of_one_host_to_one_host_get_an_answer() {
        let [host, _] = V4;
        for other in [[0; 4], [127, 0, 0, 1], [224, 0, 0, 5], [255; 4], [240, 0, 0, 1]] {
            assert_eq!(answer(&with_df(udp(v4([other, host]))), 1300), None, "{other:?}");
            assert_eq!(answer(&with_df(udp(v4([host, other]))), 1300), None, "{other:?}");
        }
        let [host, _] = V6;
        for other in [[0; 8], [0, 0, 0, 0, 0, 0, 0, 1], [0xff02, 0, 0, 0, 0, 0, 0, 1]] {
            assert_eq!(answer(&udp(v6([other, host])), 1300), None, "{other:?}");
            assert_eq!(answer(&udp(v6([host, other])), 1300), None, "{other:?}");
        }
        for group in [0, 6] {
            let mut multicast = udp(v6(V6));
            multicast[group] |= 1;
            assert_eq!(answer(&multicast, 1300), None);
        }
        assert_eq!(answer(&[0; 60], 1300), None);
        assert_eq!(answer(&[], 1300), None);
    }
}
