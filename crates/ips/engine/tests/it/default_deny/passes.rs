//! Pass rules, as text and as the oracle reads them.

use std::net::IpAddr;

use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};

use super::talks::{Handshake, Proto, Shown, Talk};

/// A pass rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    /// Packets of TCP to and from a port before the connection is established.
    Handshake(u16),
    /// Packets of TCP to a port with exactly these flags.
    Flags(u16, u16),
    /// Datagrams to a port.
    Datagrams(u16),
    /// All packets between two hosts: one from the first to the second names the conversation.
    Hosts(IpAddr, IpAddr),
    /// Connections to a port whose client has sent a word.
    Word(u16),
    /// Datagrams to a port with a word.
    WordInDatagram(u16),
    /// Echo requests of IPv4.
    Echo,
    /// Echo requests of IPv6.
    Echo6,
}

impl Pass {
    /// Returns the text of the rule.
    pub(super) fn text(self, sid: usize) -> String {
        let word = |flags: u16| {
            [(SYN, 'S'), (ACK, 'A'), (FIN, 'F'), (RST, 'R'), (PSH, 'P')]
                .into_iter()
                .filter(|(flag, _)| flags & flag != 0)
                .map(|(_, letter)| letter)
                .collect::<String>()
        };
        match self {
            Pass::Handshake(port) => {
                format!("pass tcp any any <> any {port} (flow:not_established; sid:{sid};)")
            }
            Pass::Flags(port, flags) => {
                format!(
                    "pass tcp any any -> any {port} (flags:{}; sid:{sid};)",
                    word(flags)
                )
            }
            Pass::Datagrams(port) => format!("pass udp any any -> any {port} (sid:{sid};)"),
            Pass::Hosts(a, b) => format!("pass ip {a} any -> {b} any (sid:{sid};)"),
            Pass::Word(port) => format!("pass tcp any any -> any {port} (content:\"good\"; sid:{sid};)"),
            Pass::WordInDatagram(port) => {
                format!("pass udp any any -> any {port} (content:\"good\"; sid:{sid};)")
            }
            Pass::Echo => format!("pass icmp any any -> any any (itype:8; sid:{sid};)"),
            Pass::Echo6 => format!("pass icmpv6 any any -> any any (itype:128; sid:{sid};)"),
        }
    }

    /// Returns true if the rule names the packet.
    pub(super) fn names_packet(self, packet: &Shown, talk: &Talk) -> bool {
        match self {
            // An acknowledgment without data may belong to a handshake of which the engine knows only a part.
            Pass::Handshake(port) => {
                let is_early = talk.handshake != Handshake::Complete || packet.data.is_empty();
                packet.proto == Proto::Tcp && talk.server.1 == port && is_early
            }
            Pass::Flags(port, flags) => {
                packet.proto == Proto::Tcp && packet.dst.1 == port && packet.flags == flags
            }
            Pass::Datagrams(port) => packet.proto == Proto::Udp && packet.dst.1 == port,
            Pass::Hosts(a, b) => packet.src.0 == a && packet.dst.0 == b,
            Pass::WordInDatagram(port) => {
                let has_word = packet.data.windows(4).any(|word| word == b"good");
                packet.proto == Proto::Udp && packet.dst.1 == port && has_word
            }
            Pass::Word(_) => false,
            Pass::Echo | Pass::Echo6 => {
                let is_of_version = talk.is_ipv6() == (self == Pass::Echo6);
                packet.proto == Proto::Echo && packet.from_client && is_of_version
            }
        }
    }

    /// Returns true if the rule names the conversation from this packet on.
    pub(super) fn names_talk(self, packet: &Shown, talk: &Talk) -> bool {
        match self {
            Pass::Hosts(..) => packet.proto != Proto::Message && self.names_packet(packet, talk),
            Pass::Word(port) => {
                let bytes = &talk.bytes[usize::from(!packet.from_client)];
                packet.proto == Proto::Tcp
                    && packet.dst.1 == port
                    && bytes.windows(4).any(|word| word == b"good")
            }
            _ => false,
        }
    }
}
