//! Conversations of IPv4 and IPv6, packet by packet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use millrace_wire::{Dscp, Ecn, FlowLabel, IpProto, ipv6, tcp, udp};

use crate::bed::{fragments, ip};
use crate::synthesis::random::Random;

/// Protocol numbers of extension headers of IPv6 (RFC 8200, section 4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Proto {
    Tcp,
    Udp,
    /// An echo request, or a reply from the server.
    Echo,
    /// An ICMP message that begins no conversation: an error that quotes a packet of one, or neighbour discovery.
    Message,
}

/// The progress of a handshake, from the last SYN on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handshake {
    Incomplete,
    Answered,
    Complete,
}

/// A conversation between two hosts, and the state of its ends. Its senders do not care what is forwarded.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    pub(super) proto: Proto,
    client: (IpAddr, u16),
    pub(super) server: (IpAddr, u16),
    step: usize,
    sent: [u32; 2],
    /// The bytes of each direction since the last SYN that was forwarded.
    pub(super) bytes: [Vec<u8>; 2],
    pub(super) handshake: Handshake,
}

/// A packet as the oracle sees it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) proto: Proto,
    pub(super) src: (IpAddr, u16),
    pub(super) dst: (IpAddr, u16),
    pub(super) flags: u16,
    pub(super) data: Vec<u8>,
    pub(super) from_client: bool,
}

/// Returns the address of a host.
pub(super) fn host(is_ipv6: bool, number: usize) -> IpAddr {
    let last = 1 + number as u8;
    match is_ipv6 {
        true => host_v6(last).into(),
        false => Ipv4Addr::new(10, 0, 0, last).into(),
    }
}

fn host_v6(last: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into())
}

fn pseudo(src: IpAddr, dst: IpAddr) -> Pseudo {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Pseudo::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => Pseudo::V6 { src, dst },
        _ => panic!("{src} and {dst} are of two versions"),
    }
}

/// Returns headers of these kinds before an upper layer, each of which changes nothing, with the kind of the first.
fn extended(kinds: &[u8], upper: u8, payload: &[u8]) -> (u8, Vec<u8>) {
    let before = |(next, rest): (u8, Vec<u8>), kind: &u8| {
        let header = match *kind {
            // A routing header of an experimental type without segments left (RFC 8200, section 4.4; RFC 4727).
            ROUTING => [next, 0, 253, 0, 0, 0, 0, 0],
            // The fragment header of a packet in one piece (RFC 6946).
            FRAGMENT => [next, 0, 0, 0, 0, 0, 0, 9],
            // Options: six bytes of padding.
            _ => [next, 0, 1, 4, 0, 0, 0, 0],
        };
        (*kind, [&header[..], &rest].concat())
    };
    kinds.iter().rev().fold((upper, payload.to_vec()), before)
}

/// Returns a packet with these headers and data, the first of this kind.
fn ipv6_packet(ends: (Ipv6Addr, Ipv6Addr), (first, rest): (u8, Vec<u8>)) -> Vec<u8> {
    let header = ipv6::Repr {
        src: ends.0,
        dst: ends.1,
        next_header: IpProto(first),
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        flow_label: FlowLabel::from_low_bits(0),
        // Neighbour discovery needs it (RFC 4861, section 7.1.1).
        hop_limit: 255,
        payload_size: rest.len() as u16,
    };
    [&header.to_bytes()[..], &rest].concat()
}

/// Returns an ICMPv6 message of a type.
pub(super) fn icmpv6(kind: u8) -> Vec<u8> {
    let ends = (host_v6(1), host_v6(2));
    let body = [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &[0xfd; 16]].concat();
    ipv6_packet(ends, (IpProto::ICMPV6.0, body))
}

/// A packet, and the pieces in which it is sent.
pub(super) struct Sent {
    pub(super) packet: Vec<u8>,
    pub(super) pieces: Vec<Vec<u8>>,
    /// True if headers stand between the IPv6 header and the upper layer.
    pub(super) is_extended: bool,
}

/// Returns a packet of either version of IP, sometimes in fragments and with extension headers.
fn packet(
    ends: (IpAddr, IpAddr),
    proto: IpProto,
    payload: &[u8],
    may_be_cut: bool,
    random: &mut Random,
) -> Sent {
    let is_cut = may_be_cut && random.one_in(4);
    let (src, dst) = match ends {
        (IpAddr::V6(src), IpAddr::V6(dst)) => (src, dst),
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let packet = ip((src, dst), proto, payload);
            let pieces = if is_cut {
                fragments(&packet, 8)
            } else {
                vec![packet.clone()]
            };
            return Sent {
                packet,
                pieces,
                is_extended: false,
            };
        }
        (src, dst) => panic!("{src} and {dst} are of two versions"),
    };
    let chains: [(&[u8], &[u8]); 8] = [
        (&[], &[]),
        (&[], &[]),
        (&[], &[]),
        (&[HOP_BY_HOP], &[]),
        (&[], &[DESTINATION]),
        (&[HOP_BY_HOP, ROUTING], &[DESTINATION]),
        (&[DESTINATION, ROUTING], &[]),
        (&[ROUTING], &[DESTINATION]),
    ];
    let (before, after) = random.choose(&chains);
    let whole = |headers| ipv6_packet((src, dst), headers);
    let (first, inner) = extended(after, proto.0, payload);
    let atomic: &[u8] = if random.one_in(10) { &[FRAGMENT] } else { &[] };
    let packet = whole(extended(&[before, atomic].concat(), first, &inner));
    let piece = |at: usize, part: &[u8], is_last: bool| {
        let [high, low] = ((at as u16) | u16::from(!is_last)).to_be_bytes();
        let header = [first, 0, high, low, 0, 0, 0, 7];
        whole(extended(before, FRAGMENT, &[&header[..], part].concat()))
    };
    let size = 8 * (1 + random.below(2));
    let parts = inner.chunks(size).enumerate();
    let last = inner.len().div_ceil(size) - 1;
    let pieces = match is_cut {
        true => parts
            .map(|(number, part)| piece(number * size, part, number == last))
            .collect(),
        false => vec![packet.clone()],
    };
    Sent {
        packet,
        pieces,
        is_extended: !before.is_empty() || !after.is_empty() || !atomic.is_empty(),
    }
}

impl Talk {
    pub(super) fn new(random: &mut Random) -> Talk {
        let is_ipv6 = random.one_in(2);
        let client = random.below(4);
        Talk {
            proto: random.choose(&[Proto::Tcp, Proto::Tcp, Proto::Udp, Proto::Echo]),
            client: (host(is_ipv6, client), 40_000 + random.below(3) as u16),
            server: (host(is_ipv6, 4 + random.below(3)), random.choose(&[53, 80, 443])),
            step: 0,
            sent: [0; 2],
            bytes: Default::default(),
            handshake: Handshake::Incomplete,
        }
    }

    pub(super) fn is_ipv6(&self) -> bool {
        self.server.0.is_ipv6()
    }

    /// Returns the next packet of the conversation.
    pub(super) fn next(&mut self, random: &mut Random) -> (Shown, Sent) {
        let mut from_client = !random.one_in(3);
        let mut flags = 0;
        let mut data = Vec::new();
        if self.proto == Proto::Tcp {
            flags = match self.step {
                0 => SYN,
                1 => SYN | ACK,
                _ if random.one_in(40) => SYN,
                _ if random.one_in(40) => FIN | ACK,
                _ if random.one_in(40) => RST,
                _ if random.one_in(2) => PSH | ACK,
                _ => ACK,
            };
            from_client = match self.step {
                0 | 2 => true,
                1 => false,
                _ => from_client,
            };
        }
        if self.proto != Proto::Tcp || self.step > 2 && flags & SYN == 0 {
            data = random
                .choose(&[&b"bad "[..], b"good ", b"go", b"od", b"x", b""])
                .to_vec();
        }
        self.handshake = match (flags & (SYN | ACK), self.handshake) {
            (SYN, _) => Handshake::Incomplete,
            (flags, Handshake::Incomplete) if flags == SYN | ACK => Handshake::Answered,
            (ACK, Handshake::Answered) if from_client => Handshake::Complete,
            (_, handshake) => handshake,
        };
        self.step += 1;
        let side = usize::from(!from_client);
        let (src, dst) = match from_client {
            true => (self.client, self.server),
            false => (self.server, self.client),
        };
        let mut body = Vec::new();
        match self.proto {
            Proto::Tcp => {
                let repr = tcp::Repr {
                    src: src.1,
                    dst: dst.1,
                    seq: 1000 + self.sent[side],
                    ack: if flags & ACK != 0 {
                        1000 + self.sent[1 - side]
                    } else {
                        0
                    },
                    flags,
                    window: 60_000,
                    urgent: 0,
                    options: tcp::Options::default(),
                };
                repr.emit(&pseudo(src.0, dst.0), &data, &mut body);
                self.sent[side] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
            }
            Proto::Udp => {
                let repr = udp::Repr {
                    src: src.1,
                    dst: dst.1,
                };
                repr.emit(&pseudo(src.0, dst.0), &data, &mut body);
            }
            Proto::Echo | Proto::Message => {
                let kind = match (self.is_ipv6(), from_client) {
                    (false, true) => 8,
                    (false, false) => 0,
                    (true, true) => 128,
                    (true, false) => 129,
                };
                body = [&[kind, 0, 0, 0, 0, 7, 0, 1][..], &data].concat();
            }
        }
        let number = match self.proto {
            Proto::Tcp => IpProto::TCP,
            Proto::Udp => IpProto::UDP,
            Proto::Echo | Proto::Message => self.icmp(),
        };
        self.bytes[side].extend_from_slice(&data);
        let shown = Shown {
            proto: self.proto,
            src,
            dst,
            flags,
            data,
            from_client,
        };
        let may_be_cut = shown.proto == Proto::Udp && shown.data.len() > 1;
        let sent = packet((src.0, dst.0), number, &body, may_be_cut, random);
        (shown, sent)
    }

    /// Returns the protocol number of ICMP for the version of the conversation.
    fn icmp(&self) -> IpProto {
        match self.is_ipv6() {
            true => IpProto::ICMPV6,
            false => IpProto::ICMPV4,
        }
    }

    /// Returns an ICMP message of any host to the client: an error about a packet of the conversation, or neighbour discovery.
    pub(super) fn message(&self, quoted: &[u8], random: &mut Random) -> (Shown, Sent) {
        let (src, dst) = (host(self.is_ipv6(), random.below(7)), self.client.0);
        // Solicitation and advertisement of a neighbour (RFC 4861), and a report of multicast listeners (RFC 3810).
        let body = match (self.is_ipv6(), random.below(5)) {
            (false, _) => [&[3, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat(),
            (true, 0) => [&[135, 0, 0, 0, 0, 0, 0, 0][..], &[0xfd; 16]].concat(),
            (true, 1) => [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &[0xfd; 16]].concat(),
            (true, 2) => vec![143, 0, 0, 0, 0, 0, 0, 0],
            (true, _) => [&[1, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat(),
        };
        let shown = Shown {
            proto: Proto::Message,
            src: (src, 0),
            dst: (dst, 0),
            flags: 0,
            data: Vec::new(),
            from_client: false,
        };
        (shown, packet((src, dst), self.icmp(), &body, false, random))
    }

    pub(super) fn key(&self) -> (Proto, (IpAddr, u16), (IpAddr, u16)) {
        match self.proto {
            // Echoes have no ports.
            Proto::Echo => (self.proto, (self.client.0, 0), (self.server.0, 0)),
            _ => (self.proto, self.client, self.server),
        }
    }
}
