//! Rule sets that deny by default: pass rules, and drop rules that name every packet. Nothing is forwarded that no pass rule
//! names.
//!
//! The oracle knows nothing of flows, streams and types of rules in the engine. It sees packets as the test sends them, and
//! says yes to a packet if a pass rule names it, or if one named its conversation before. It may say yes too often, as to a
//! conversation that the engine forgot; the engine may forward only what it says yes to.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use millrace_ips_engine::policy::{Cause, Policies, Policy};
use millrace_ips_engine::{Mode, Settings};
use millrace_types::Duration;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, FIN, PSH, RST, SYN};
use millrace_wire::{IpProto, tcp, udp};

use crate::bed::{TestBed, acknowledgment, data, datagram, fragments, handshake, ip};
use crate::synthesis::random::Random;

/// Rules that together name every packet that is not a fragment, in each type of rule that can.
const DENIALS: &[&[&str]] = &[
    &["drop ip any any -> any any (sid:1;)"],
    &["drop ip any any <> any any (sid:1;)"],
    &["drop ip any any -> any any (flow:stateless; sid:1;)"],
    &["drop ip any any -> any any (noalert; sid:1;)"],
    &["drop ip any any -> any any (hostbits:set,seen; sid:1;)"],
    &["drop ip any any -> any any (flowbits:set,seen; sid:1;)"],
    &["drop ip any any -> any any (ttl:>0; sid:1;)"],
    &["drop ip !10.9.9.9 any -> any any (sid:1;)"],
    &["drop ip [0.0.0.0/1,128.0.0.0/1] any -> any any (sid:1;)"],
    &["reject ip any any -> any any (sid:1;)"],
    &["reject ip any any -> any any (flow:stateless; sid:1;)"],
    &["sdrop ip any any -> any any (sid:1;)"],
    &[
        "drop tcp any any -> any any (sid:1;)",
        "drop udp any any -> any any (sid:2;)",
        "drop icmp any any -> any any (sid:3;)",
    ],
    &[
        "drop tcp-pkt any any -> any any (sid:1;)",
        "drop udp any any -> any any (flow:stateless; sid:2;)",
        "drop icmp any any -> any any (flow:stateless; sid:3;)",
    ],
    &[
        "drop tcp-stream any any -> any any (sid:1;)",
        "drop udp any any -> any any (sid:2;)",
        "drop icmp any any -> any any (sid:3;)",
    ],
    &[
        "drop tcp any any -> any any (flow:only_stream; sid:1;)",
        "drop udp any any -> any any (flow:no_stream; sid:2;)",
        "drop icmp any any -> any any (flow:no_stream; sid:3;)",
    ],
    &[
        "drop ip any any -> any any (flow:no_frag; sid:1;)",
        "drop ip any any -> any any (flow:only_frag; sid:2;)",
    ],
];

/// Denials that need a flow. ICMP errors that quote no flow have none, so the test sends none beside them.
const DENIALS_OF_FLOWS: &[&[&str]] = &[
    &["drop ip any any -> any any (flowbits:isnotset,never; sid:1;)"],
    &["drop ip any any -> any any (flowint:never,notset; sid:1;)"],
    &[
        "drop ip any any -> any any (flow:to_server; sid:1;)",
        "drop ip any any -> any any (flow:to_client; sid:2;)",
    ],
    &[
        "drop ip any any -> any any (flow:established; sid:1;)",
        "drop ip any any -> any any (flow:not_established; sid:2;)",
    ],
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Proto {
    Tcp,
    Udp,
    /// An echo request, or a reply from the server.
    Echo,
    /// An ICMP error that quotes the first packet of the conversation.
    Error,
}

/// The progress of a handshake, from the last SYN on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Incomplete,
    Answered,
    Complete,
}

/// A conversation between two hosts, and the state of its ends. Its senders do not care what is forwarded.
#[derive(Debug, Clone)]
struct Talk {
    proto: Proto,
    client: (Ipv4Addr, u16),
    server: (Ipv4Addr, u16),
    step: usize,
    sent: [u32; 2],
    /// The bytes of each direction since the last SYN that was forwarded.
    bytes: [Vec<u8>; 2],
    handshake: Handshake,
}

/// A packet as the oracle sees it.
#[derive(Debug, Clone)]
struct Shown {
    proto: Proto,
    src: (Ipv4Addr, u16),
    dst: (Ipv4Addr, u16),
    flags: u16,
    data: Vec<u8>,
    from_client: bool,
}

/// A pass rule, as text and as the oracle reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pass {
    /// Packets of TCP to and from a port before the connection is established.
    Handshake(u16),
    /// Packets of TCP to a port with exactly these flags.
    Flags(u16, u16),
    /// Datagrams to a port.
    Datagrams(u16),
    /// All packets between two hosts: one from the first to the second names the conversation.
    Hosts(Ipv4Addr, Ipv4Addr),
    /// Connections to a port whose client has sent a word.
    Word(u16),
    /// Datagrams to a port with a word.
    WordInDatagram(u16),
    /// Echo requests.
    Echo,
}

impl Pass {
    fn text(self, sid: usize) -> String {
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
        }
    }

    /// Returns true if the rule names the packet.
    fn names_packet(self, packet: &Shown, talk: &Talk) -> bool {
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
            Pass::Echo => packet.proto == Proto::Echo && packet.from_client,
        }
    }

    /// Returns true if the rule names the conversation from this packet on.
    fn names_talk(self, packet: &Shown, talk: &Talk) -> bool {
        match self {
            Pass::Hosts(..) => packet.proto != Proto::Error && self.names_packet(packet, talk),
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

fn host(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + number as u8)
}

impl Talk {
    fn new(random: &mut Random) -> Talk {
        let client = random.below(4);
        Talk {
            proto: random.choose(&[Proto::Tcp, Proto::Tcp, Proto::Udp, Proto::Echo]),
            client: (host(client), 40_000 + random.below(3) as u16),
            server: (host(4 + random.below(3)), random.choose(&[53, 80, 443])),
            step: 0,
            sent: [0; 2],
            bytes: Default::default(),
            handshake: Handshake::Incomplete,
        }
    }

    /// Returns the next packet of the conversation.
    fn next(&mut self, random: &mut Random) -> (Shown, Vec<u8>) {
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
                repr.emit(
                    &Pseudo::V4 {
                        src: src.0,
                        dst: dst.0,
                    },
                    &data,
                    &mut body,
                );
                self.sent[side] += data.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
            }
            Proto::Udp => {
                let repr = udp::Repr {
                    src: src.1,
                    dst: dst.1,
                };
                repr.emit(
                    &Pseudo::V4 {
                        src: src.0,
                        dst: dst.0,
                    },
                    &data,
                    &mut body,
                );
            }
            Proto::Echo | Proto::Error => {
                let kind = if from_client { 8 } else { 0 };
                body = [&[kind, 0, 0, 0, 0, 7, 0, 1][..], &data].concat();
            }
        }
        let number = match self.proto {
            Proto::Tcp => IpProto::TCP,
            Proto::Udp => IpProto::UDP,
            Proto::Echo | Proto::Error => IpProto::ICMPV4,
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
        (shown, ip((src.0, dst.0), number, &body))
    }

    /// Returns an ICMP error of any host about a packet of the conversation.
    fn error(&self, quoted: &[u8], random: &mut Random) -> (Shown, Vec<u8>) {
        let (src, dst) = (host(random.below(7)), self.client.0);
        let body = [&[3, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat();
        let shown = Shown {
            proto: Proto::Error,
            src: (src, 0),
            dst: (dst, 0),
            flags: 0,
            data: Vec::new(),
            from_client: false,
        };
        (shown, ip((src, dst), IpProto::ICMPV4, &body))
    }

    fn key(&self) -> (Proto, (Ipv4Addr, u16), (Ipv4Addr, u16)) {
        match self.proto {
            // Echoes have no ports.
            Proto::Echo => (self.proto, (self.client.0, 0), (self.server.0, 0)),
            _ => (self.proto, self.client, self.server),
        }
    }
}

/// Returns pass rules and their text with the text of a denial, in any order.
fn rules(denial: &[&str], random: &mut Random) -> (Vec<Pass>, String) {
    let mut passes = HashSet::new();
    for _ in 0..random.below(5) {
        let port = random.choose(&[53, 80, 443]);
        let ends = (host(random.below(4)), host(4 + random.below(3)));
        passes.insert(match random.below(8) {
            0 => Pass::Handshake(port),
            1 => Pass::Flags(port, SYN),
            2 => Pass::Flags(port, random.choose(&[ACK, PSH | ACK])),
            3 => Pass::Datagrams(port),
            4 => Pass::Hosts(ends.0, ends.1),
            5 => Pass::Word(port),
            6 => Pass::WordInDatagram(port),
            _ => Pass::Echo,
        });
    }
    let passes: Vec<Pass> = passes.into_iter().collect();
    // The number of a rule follows from its text, so that a later set has the same rule.
    let sid = |pass: &Pass| {
        100 + pass
            .text(0)
            .bytes()
            .fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % 100_000)
    };
    let mut lines: Vec<String> = passes.iter().map(|pass| pass.text(sid(pass))).collect();
    for line in denial {
        let at = random.below(lines.len() + 1);
        lines.insert(at, (*line).to_owned());
    }
    (passes, lines.join("\n"))
}

/// Sends conversations through an engine, and compares what it forwards with the oracle.
fn run(seed: u64, denials: &[&[&str]], has_errors: bool) -> Outcome {
    let mut random = Random(seed);
    let denial = denials[random.below(denials.len())];
    let (mut passes, mut text) = rules(denial, &mut random);
    // The smallest table has eight flows: flows are evicted, or new ones are refused.
    let on_flow_table = random.choose(&[Policy::DropFlow, Policy::Ignore]);
    let settings = Settings {
        mode: Mode::Ips,
        policies: Policies::closed().with(Cause::FlowTable, on_flow_table),
        flows: random.choose(&[8, 4096]),
        idle_search: random.choose(&[0, 16]),
        ..Settings::default()
    };
    let mut bed = TestBed::with(settings, &text);
    let mut talks: Vec<Talk> = (0..12).map(|_| Talk::new(&mut random)).collect();
    // Two conversations with the same ends would have different numbers.
    let mut keys = HashSet::new();
    talks.retain(|talk| keys.insert(talk.key()));
    let mut named: HashSet<(usize, Pass)> = HashSet::new();
    let (mut sent, mut forwarded) = (0, 0);
    for _ in 0..300 {
        if random.one_in(60) {
            let denial = denials[random.below(denials.len())];
            (passes, text) = rules(denial, &mut random);
            bed.reload(&text);
        }
        if random.one_in(80) {
            bed.now = bed.now + Duration::from_secs(random.choose(&[40, 700]));
        }
        bed.now = bed.now + Duration::from_millis(1);
        let index = random.below(talks.len());
        let (mut shown, mut packet) = talks[index].next(&mut random);
        if has_errors && random.one_in(12) && talks[index].proto != Proto::Echo {
            (shown, packet) = talks[index].error(&packet, &mut random);
        }
        let talk = &talks[index];
        let is_named = passes.iter().any(|pass| pass.names_packet(&shown, talk));
        for pass in &passes {
            if pass.names_talk(&shown, talk) {
                named.insert((index, *pass));
            }
        }
        let is_of_talk = shown.proto != Proto::Error;
        let is_named = is_named || is_of_talk && passes.iter().any(|pass| named.contains(&(index, *pass)));
        let mut pieces = vec![packet.clone()];
        if shown.proto == Proto::Udp && shown.data.len() > 1 && random.one_in(4) {
            pieces = fragments(&packet, 8);
        }
        // A datagram arrives if each of its fragments does.
        let mut is_forwarded = true;
        for piece in pieces {
            is_forwarded &= !bed.send(piece).is_dropped();
        }
        assert!(
            is_named || !is_forwarded,
            "seed {seed}: no pass rule names packet {sent}, {shown:?} of {talk:?}\n{text}"
        );
        if is_forwarded && shown.flags & (SYN | ACK) == SYN {
            named.retain(|(of, _)| *of != index);
            talks[index].bytes = Default::default();
            for pass in &passes {
                if pass.names_talk(&shown, &talks[index]) {
                    named.insert((index, *pass));
                }
            }
        }
        sent += 1;
        forwarded += usize::from(is_forwarded);
    }
    let counters = bed.engine.flow_counters();
    let refused = bed.engine.counters().exceptions[Cause::FlowTable as usize];
    Outcome {
        sent,
        forwarded,
        evicted: counters.evicted_full + counters.evicted_set,
        refused,
    }
}

/// The packets of a run, or of several.
#[derive(Debug, Default)]
struct Outcome {
    sent: usize,
    forwarded: usize,
    /// Flows that made room for others.
    evicted: u64,
    /// Packets that began no flow because the table was full.
    refused: u64,
}

impl Outcome {
    fn add(&mut self, other: &Outcome) {
        self.sent += other.sent;
        self.forwarded += other.forwarded;
        self.evicted += other.evicted;
        self.refused += other.refused;
    }
}

#[test]
fn a_set_that_denies_by_default_forwards_nothing_that_no_pass_rule_names() {
    let mut all = Outcome::default();
    for seed in 0..600 {
        all.add(&run(seed, DENIALS, true));
    }
    for seed in 0..100 {
        all.add(&run(seed, DENIALS_OF_FLOWS, false));
    }
    println!("{all:?}");
    assert!(
        all.forwarded * 40 > all.sent,
        "few packets were forwarded: {all:?}"
    );
    // The table of flows was full, in both ways of its policy.
    assert!(all.evicted > 1000 && all.refused > 1000, "{all:?}");
}

#[test]
fn a_protocol_that_no_datagram_has_is_none_of_the_named_ones() {
    let mut bed = TestBed::new(
        Mode::Ips,
        "drop udp any any -> any any (app-layer-protocol:!dns; sid:1;)",
    );
    assert!(
        bed.send(datagram(b"this is no message of any protocol"))
            .is_dropped()
    );
}

#[test]
fn a_rule_over_a_flow_that_a_passed_packet_matched_drops_the_next_packet() {
    // The types of rules over flows: addresses, protocol, stream, transaction.
    for denial in [
        "drop ip any any -> any any (sid:1;)",
        "drop http any any -> any any (sid:1;)",
        "drop tcp any any -> any any (content:\"GET\"; sid:1;)",
        "drop http any any -> any any (http.uri; content:\"/a\"; sid:1;)",
        "reject http any any -> any any (http.uri; content:\"/a\"; sid:1;)",
    ] {
        let passes = "pass tcp any any <> any any (flow:not_established; sid:2;)
            pass tcp any any -> any any (flow:to_server; dsize:>20; sid:3;)";
        let mut bed = TestBed::new(Mode::Ips, &format!("{denial}\n{passes}"));
        bed.send_all(handshake().into_iter().take(2));
        if denial.contains(" http") || denial.contains("content") {
            bed.send(handshake()[2].clone());
            let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
            assert!(!bed.send(data(0, request)).is_dropped(), "{denial}");
            assert_eq!(bed.alerts(), 0, "{denial}");
            assert!(bed.send(acknowledgment(27)).is_dropped(), "{denial}");
        } else {
            assert!(bed.send(handshake()[2].clone()).is_dropped(), "{denial}");
        }
        assert_eq!(bed.alerts(), 1, "{denial}");
        // The rule dropped the flow, so that packets that a rule would pass are dropped, too.
        assert!(bed.send(data(27, &[b'x'; 30])).is_dropped(), "{denial}");
    }
}

#[test]
fn a_flow_is_judged_again_when_the_rule_that_passed_it_is_gone() {
    let denial = "drop ip any any -> any any (flow:stateless; sid:1;)";
    let pass = "pass udp any any -> any any (content:\"good\"; sid:2;)";
    let host = "pass ip 10.0.0.1 any -> any any (sid:3;)";
    let mut bed = TestBed::new(Mode::Ips, &format!("{denial}\n{host}"));
    assert!(!bed.send(datagram(b"x")).is_dropped());
    // The order and the number of the rules do not count, their text does.
    bed.reload(&format!("{pass}\n{denial}\n{host}"));
    assert!(!bed.send(datagram(b"x")).is_dropped());
    bed.reload(&format!("{denial}\n{pass}"));
    assert!(bed.send(datagram(b"x")).is_dropped());
}
