//! Packets of ARP.

use millrace_ips_engine::event::Subject;
use millrace_ips_engine::packet::ArpPacket;
use millrace_types::Mac;

use crate::object::Object;
use crate::writer::{Frame, Writer};

/// Operations by their numbers (RFC 826, RFC 903, RFC 1931, RFC 2390).
const OPERATIONS: [(u16, &str); 9] = [
    (1, "request"),
    (2, "reply"),
    (3, "request_reverse"),
    (4, "reply_reverse"),
    (5, "drarp_request"),
    (6, "drarp_reply"),
    (7, "drarp_error"),
    (8, "inarp_request"),
    (9, "inarp_reply"),
];

impl Writer {
    /// Writes a packet of ARP as a line. Its addresses are in the object only, as the frame carries no IP.
    pub(crate) fn arp(&self, subject: &Subject, packet: &ArpPacket, frame: Frame<'_>, out: &mut Vec<u8>) {
        let mut line = self.begin_frame(subject, "arp", frame, out);
        line.object("arp", |out| fields(out, packet));
        self.end(line);
    }
}

fn fields(out: &mut Object<'_>, packet: &ArpPacket) {
    let known = OPERATIONS.iter().find(|(number, _)| *number == packet.operation);
    out.field("hw_type", "ethernet")
        .field("proto_type", "ipv4")
        .field("opcode", known.map_or("unknown", |(_, name)| *name))
        .field("src_mac", Mac(packet.sender_mac).to_string())
        .field("src_ip", packet.sender.to_string())
        .field("dest_mac", Mac(packet.target_mac).to_string())
        .field("dest_ip", packet.target.to_string());
}
