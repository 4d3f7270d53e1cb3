//! The answer to a packet that is longer than the emulated MTU: "fragmentation needed" of ICMP (RFC 792, RFC 1191), "packet
//! too big" of ICMPv6 (RFC 4443, section 3.2).

use millrace_types::Mac;
use millrace_wire::{Builder, Depth, IpProto, L3, Layers, icmpv4, ipv4, ipv6};

/// The bytes of the packet that an ICMP message quotes: RFC 1812, section 4.3.2.3, so that the answer has 576 bytes at most.
const QUOTED_V4: usize = 548;
/// RFC 4443, section 2.4 (c): the answer has 1280 bytes at most.
const QUOTED_V6: usize = 1232;
/// The bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;

/// Returns the frame to send back to the sender of `frame`, as if a router with the packet's own destination as its address
/// had dropped it. There is none for a packet that may be fragmented (IPv4 without the flag DF), and for those that must not be
/// answered: multicasts, later fragments, ICMP errors (RFC 1122, section 3.2.2).
pub fn reply(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let layers = Layers::parse(frame, Depth::L4);
    // The packet's own layer 2, with its tags, back to where it came from.
    let mut answer = frame.get(..layers.l3_offset())?.to_vec();
    let (dst, src) = (answer.get(..6)?.to_vec(), answer.get(6..12)?.to_vec());
    if (dst[0] | src[0]) & 1 != 0 {
        return None;
    }
    answer[..6].copy_from_slice(&src);
    answer[6..12].copy_from_slice(&dst);
    let packet = frame.get(layers.l3_offset()..)?;
    let icmp_type = frame.get(layers.l4_offset()).copied();
    let plain = Builder::ethernet(Mac::default(), Mac::default());
    let message = match layers.l3() {
        L3::Ipv4 => {
            let view = ipv4::View::new(packet).ok()?;
            let is_error = view.proto() == IpProto::ICMPV4 && matches!(icmp_type, Some(3 | 4 | 5 | 11 | 12));
            if !view.dont_fragment() || view.fragment_offset() != 0 || is_error {
                return None;
            }
            let [high, low] = mtu.to_be_bytes();
            let header = icmpv4::Repr {
                kind: 3,
                code: 4,
                rest: [0, 0, high, low],
            };
            let quoted = &packet[..QUOTED_V4.min(packet.len())];
            plain.ipv4(view.dst(), view.src()).icmpv4(header).payload(quoted)
        }
        L3::Ipv6 => {
            let view = ipv6::View::new(packet).ok()?;
            // The types of errors are below 128.
            if layers.ip_proto() == IpProto::ICMPV6 && icmp_type.is_none_or(|kind| kind < 128) {
                return None;
            }
            // The 32 bits after the checksum are the MTU.
            let mut body = u32::from(mtu).to_be_bytes().to_vec();
            body.extend_from_slice(&packet[..QUOTED_V6.min(packet.len())]);
            plain.ipv6(view.dst(), view.src()).icmpv6(2, 0).payload(&body)
        }
        _ => return None,
    };
    answer.extend_from_slice(message.build().get(ETHERNET..)?);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::{L4, icmpv6};

    fn frame(payload: usize, v6: bool) -> Vec<u8> {
        let builder = Builder::ethernet(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])).vlan(7, 0);
        let builder = if v6 {
            builder.ipv6(
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1],
                [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2],
            )
        } else {
            builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2])
        };
        builder.udp(1, 2).payload(&vec![0xab; payload]).build()
    }

    #[test]
    fn the_sender_is_told_the_mtu_on_its_own_vlan() {
        for v6 in [false, true] {
            let mut frame = frame(1400, v6);
            if !v6 {
                assert_eq!(reply(&frame, 1300), None, "it may be fragmented");
                frame[18 + 6] |= 0x40;
            }
            let answer = reply(&frame, 1300).unwrap();
            assert_eq!(
                (&answer[..6], &answer[6..12], &answer[12..18]),
                (&frame[6..12], &frame[..6], &frame[12..18])
            );
            let layers = Layers::parse(&answer, Depth::L4);
            let message = &answer[layers.l4_offset()..];
            let quoted = if v6 {
                let view = icmpv6::View::new(message).unwrap();
                assert_eq!((layers.l4(), view.kind(), view.code()), (L4::Icmpv6, 2, 0));
                assert!(view.checksum_is_right(&ipv6::View::new(&answer[18..]).unwrap().pseudo()));
                assert_eq!(message[4..8], 1300u32.to_be_bytes());
                assert_eq!(answer.len(), 18 + 1280);
                &message[8..]
            } else {
                let view = icmpv4::View::new(message).unwrap();
                assert_eq!((layers.l4(), view.kind(), view.code()), (L4::Icmpv4, 3, 4));
                assert!(view.checksum_is_right());
                assert_eq!(view.rest(), [0, 0, 5, 20]);
                assert_eq!(answer.len(), 18 + 576);
                &message[8..]
            };
            assert_eq!(*quoted, frame[18..18 + quoted.len()]);
            assert_eq!(reply(&answer, 100), None, "an error is not answered");
        }
    }

    #[test]
    fn what_is_no_unicast_packet_is_not_answered() {
        let mut multicast = frame(1400, true);
        multicast[0] = 0x33;
        assert_eq!(reply(&multicast, 1300), None);
        assert_eq!(reply(&[0; 60], 1300), None);
        assert_eq!(reply(&[], 1300), None);
    }
}
