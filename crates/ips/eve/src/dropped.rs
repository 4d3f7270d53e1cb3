//! The headers of a dropped packet.

use millrace_ips_engine::packet::{LinkType, ip_packet};

use crate::object::Object;
use crate::protocol::{ICMP, ICMPV6, TCP, UDP};

/// Names of the control bits of TCP in the order of the record, with their bits.
const FLAGS: [(&str, u8); 6] = [
    ("syn", 0x02),
    ("ack", 0x10),
    ("psh", 0x08),
    ("rst", 0x04),
    ("urg", 0x20),
    ("fin", 0x01),
];

/// Writes the values of the outermost IP header of a frame, and of the transport header behind it.
pub(crate) fn headers(out: &mut Object<'_>, frame: &[u8], link: u32) {
    let Some(packet) = ip_packet(frame, LinkType(link)) else {
        return;
    };
    let u16_at = |at: usize| {
        packet
            .get(at..at + 2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let transport = match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let (Some(len), Some(id), Some(fragment)) = (u16_at(2), u16_at(4), u16_at(6)) else {
                return;
            };
            let (Some(&tos), Some(&ttl), Some(&protocol)) = (packet.get(1), packet.get(8), packet.get(9))
            else {
                return;
            };
            out.field("len", len)
                .field("tos", tos)
                .field("ttl", ttl)
                .field("ipid", id);
            let size = usize::from(packet[0] & 0x0f) * 4;
            // Only the first fragment has the transport header.
            packet
                .get(size..)
                .filter(|_| fragment & 0x1fff == 0)
                .map(|rest| (protocol, rest))
        }
        Some(6) => {
            let (Some(first), Some(label), Some(len)) = (u16_at(0), u16_at(2), u16_at(4)) else {
                return;
            };
            let (Some(&next), Some(&hops)) = (packet.get(6), packet.get(7)) else {
                return;
            };
            out.field("len", len)
                .field("tc", first >> 4 & 0xff)
                .field("hoplimit", hops)
                .field("flowlbl", u32::from(first & 0x0f) << 16 | u32::from(label));
            packet.get(40..).map(|rest| (next, rest))
        }
        _ => return,
    };
    if let Some((protocol, header)) = transport {
        transport_header(out, protocol, header);
    }
}

fn transport_header(out: &mut Object<'_>, protocol: u8, header: &[u8]) {
    let u16_at = |at: usize| {
        header
            .get(at..at + 2)
            .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    let u32_at = |at: usize| Some(u32::from(u16_at(at)?) << 16 | u32::from(u16_at(at + 2)?));
    if protocol == TCP
        && let (Some(sequence), Some(acknowledgment), Some(window), Some(urgent)) =
            (u32_at(4), u32_at(8), u16_at(14), u16_at(18))
    {
        out.field("tcpseq", sequence)
            .field("tcpack", acknowledgment)
            .field("tcpwin", window);
        for (name, bit) in FLAGS {
            out.field(name, header[13] & bit != 0);
        }
        out.field("tcpres", header[12] & 0x0f).field("tcpurgp", urgent);
    } else if protocol == UDP
        && let Some(len) = u16_at(4)
    {
        out.field("udplen", len);
    } else if matches!(protocol, ICMP | ICMPV6)
        && matches!(header.first(), Some(0 | 8 | 128 | 129))
        && let (Some(id), Some(sequence)) = (u16_at(4), u16_at(6))
    {
        out.field("icmp_id", id).field("icmp_seq", sequence);
    }
}
