//! An engine with rules, and builders of packets.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use millrace_ips_engine::detect::{CompileSettings, Numbers, Ruleset, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings, Verdict};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, SYN};
use millrace_wire::{Dscp, Ecn, IpProto, ipv4, tcp, udp};

/// Initial sequence numbers of the client and the server.
pub(crate) const CLIENT: u32 = 1000;
pub(crate) const SERVER: u32 = 9000;

/// A rule that drops a flow if its stream or packets contain the word "attack".
pub(crate) const ATTACK: &str = r#"drop ip any any -> any any (msg:"attack"; content:"attack"; sid:1;)"#;

/// Compiles rules; each must be accepted.
pub(crate) fn ruleset(text: &str) -> Ruleset {
    ruleset_after(text, None)
}

/// Compiles rules that replace those with the numbers `previous`; each must be accepted.
fn ruleset_after(text: &str, previous: Option<Numbers>) -> Ruleset {
    let mut set = RuleSet::default();
    let file = files::parse(Syntax::Suricata, "test", text.as_bytes());
    set.add("test", file, &Variables::usual());
    assert!(set.refusals().is_empty(), "{:?}", set.refusals());
    let settings = CompileSettings {
        previous,
        ..CompileSettings::default()
    };
    let (rules, refusals) = compile(&set, &settings);
    assert!(refusals.is_empty(), "{refusals:?}");
    rules
}

/// A packet after inspection: the verdict, and the bytes that are forwarded.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) verdict: Verdict,
    pub(crate) bytes: Vec<u8>,
}

impl Sent {
    /// Returns true if the packet is not forwarded.
    pub(crate) fn is_dropped(&self) -> bool {
        matches!(self.verdict, Verdict::Drop(_) | Verdict::Reject { .. })
    }
}

/// An engine with rules.
pub(crate) struct TestBed {
    pub(crate) engine: Engine,
    rules: Ruleset,
    events: Events,
    number: u64,
    pub(crate) now: Time,
}

impl TestBed {
    pub(crate) fn new(mode: Mode, rules: &str) -> TestBed {
        let settings = Settings {
            mode,
            ..Settings::default()
        };
        TestBed::with(settings, rules)
    }

    /// Returns an engine in mode `ips` with the rule [`ATTACK`].
    pub(crate) fn inline() -> TestBed {
        TestBed::new(Mode::Ips, ATTACK)
    }

    pub(crate) fn with(settings: Settings, rules: &str) -> TestBed {
        TestBed::of(settings, ruleset(rules))
    }

    /// Returns an engine with compiled rules.
    pub(crate) fn of(settings: Settings, rules: Ruleset) -> TestBed {
        TestBed {
            engine: Engine::new(settings, [1, 2]),
            rules,
            events: Events::default(),
            number: 0,
            now: Time::from_secs(1000),
        }
    }

    /// Replaces the rules; flows continue.
    pub(crate) fn reload(&mut self, text: &str) {
        self.rules = ruleset_after(text, Some(self.rules.numbers.clone()));
    }

    /// Sends an IP packet.
    pub(crate) fn send(&mut self, mut bytes: Vec<u8>) -> Sent {
        self.number += 1;
        let frame = Frame {
            bytes: &mut bytes,
            link: LinkType(LinkType::RAW),
            time: self.now,
            number: self.number,
        };
        let verdict = self.engine.frame(&self.rules, frame, &mut self.events);
        Sent { verdict, bytes }
    }

    /// Sends IP packets; returns true if one of them was dropped.
    pub(crate) fn send_all(&mut self, packets: impl IntoIterator<Item = Vec<u8>>) -> bool {
        let mut is_dropped = false;
        for packet in packets {
            is_dropped |= self.send(packet).is_dropped();
        }
        is_dropped
    }

    /// Completes the handshake of the default connection.
    pub(crate) fn handshake(&mut self) {
        for packet in handshake() {
            assert!(!self.send(packet).is_dropped());
        }
    }

    /// Replaces the engine by a new one with the same settings.
    pub(crate) fn renew(&mut self) {
        self.engine = Engine::new(self.engine.settings().clone(), [1, 2]);
    }

    /// Frees the events so far.
    pub(crate) fn forget_events(&mut self) {
        self.events = Events::default();
    }

    /// Ends all flows.
    pub(crate) fn finish(&mut self) {
        self.engine.finish(&self.rules, &mut self.events);
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events.list
    }

    /// Returns the rules that matched.
    pub(crate) fn sids(&self) -> BTreeSet<u32> {
        let list = &self.events.list;
        list.iter()
            .filter_map(|event| match event {
                Event::Alert(alert) => Some(alert.sid),
                _ => None,
            })
            .collect()
    }

    /// Returns the number of alerts.
    pub(crate) fn alerts(&self) -> usize {
        let is_alert = |event: &&Event| matches!(event, Event::Alert(_));
        self.events.list.iter().filter(is_alert).count()
    }

    /// Returns true if the rule [`ATTACK`] matched.
    pub(crate) fn is_attack_found(&self) -> bool {
        self.sids().contains(&1)
    }
}

/// Returns an IPv4 packet.
pub(crate) fn ip(ends: (Ipv4Addr, Ipv4Addr), proto: IpProto, payload: &[u8]) -> Vec<u8> {
    let repr = ipv4::Repr {
        src: ends.0,
        dst: ends.1,
        proto,
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        ttl: 64,
        ident: 1,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        options: ipv4::Options::default(),
        payload_size: payload.len() as u16,
    };
    let mut out = Vec::new();
    repr.emit(&mut out);
    out.extend_from_slice(payload);
    out
}

pub(crate) const HOST_A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const HOST_B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Returns a UDP datagram from A to B.
pub(crate) fn datagram(payload: &[u8]) -> Vec<u8> {
    let pseudo = Pseudo::V4 {
        src: HOST_A,
        dst: HOST_B,
    };
    let mut out = Vec::new();
    udp::Repr { src: 4000, dst: 9999 }.emit(&pseudo, payload, &mut out);
    ip((HOST_A, HOST_B), IpProto::UDP, &out)
}

/// A TCP segment of the default connection; `port` is the client's.
#[derive(Debug, Clone)]
pub(crate) struct Segment<'a> {
    pub(crate) from_client: bool,
    pub(crate) port: u16,
    pub(crate) flags: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) data: &'a [u8],
    pub(crate) options: &'a [u8],
    pub(crate) window: u16,
    pub(crate) urgent: u16,
}

impl Default for Segment<'_> {
    fn default() -> Self {
        Segment {
            from_client: true,
            port: 40_000,
            flags: ACK,
            seq: CLIENT + 1,
            ack: SERVER + 1,
            data: &[],
            options: &[],
            window: 65_535,
            urgent: 0,
        }
    }
}

impl Segment<'_> {
    /// Returns the segment as an IPv4 packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let (src, dst, ports) = match self.from_client {
            true => (HOST_A, HOST_B, (self.port, 80)),
            false => (HOST_B, HOST_A, (80, self.port)),
        };
        let repr = tcp::Repr {
            src: ports.0,
            dst: ports.1,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: self.urgent,
            options: tcp::Options::new(self.options).unwrap(),
        };
        let mut out = Vec::new();
        repr.emit(&Pseudo::V4 { src, dst }, self.data, &mut out);
        ip((src, dst), IpProto::TCP, &out)
    }
}

/// Returns data of the client at an offset of its stream.
pub(crate) fn data(offset: u32, data: &[u8]) -> Vec<u8> {
    Segment {
        seq: CLIENT.wrapping_add(1 + offset),
        data,
        ..Segment::default()
    }
    .packet()
}

/// Returns an acknowledgment of the server for `offset` bytes.
pub(crate) fn acknowledgment(offset: u32) -> Vec<u8> {
    Segment {
        from_client: false,
        seq: SERVER + 1,
        ack: CLIENT.wrapping_add(1 + offset),
        ..Segment::default()
    }
    .packet()
}

/// Returns the handshake of the default connection.
pub(crate) fn handshake() -> [Vec<u8>; 3] {
    handshake_of(40_000)
}

/// Returns the handshake of the connection from a port.
pub(crate) fn handshake_of(port: u16) -> [Vec<u8>; 3] {
    let syn = Segment {
        port,
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        ..Segment::default()
    };
    let syn_ack = Segment {
        port,
        from_client: false,
        flags: SYN | ACK,
        seq: SERVER,
        ack: CLIENT + 1,
        ..Segment::default()
    };
    let ack = Segment {
        port,
        ..Segment::default()
    };
    [syn.packet(), syn_ack.packet(), ack.packet()]
}

/// Cuts an IPv4 packet into fragments with `size` bytes of data, a multiple of 8.
pub(crate) fn fragments(packet: &[u8], size: usize) -> Vec<Vec<u8>> {
    let view = ipv4::View::new(packet).unwrap();
    let parts: Vec<&[u8]> = view.payload().chunks(size).collect();
    let count = parts.len();
    let fragment = |(at, part): (usize, &&[u8])| fragment(packet, at * size, at + 1 < count, part);
    parts.iter().enumerate().map(fragment).collect()
}

/// Returns one fragment with the header of a packet.
pub(crate) fn fragment(packet: &[u8], offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    let view = ipv4::View::new(packet).unwrap();
    let repr = ipv4::Repr {
        more_fragments: more,
        fragment_offset: (offset / 8) as u16,
        payload_size: data.len() as u16,
        ..ipv4::Repr::parse(&view)
    };
    let mut out = Vec::new();
    repr.emit(&mut out);
    out.extend_from_slice(data);
    out
}

/// Returns a packet with another identification.
pub(crate) fn with_ident(packet: &[u8], ident: u16) -> Vec<u8> {
    let view = ipv4::View::new(packet).unwrap();
    let repr = ipv4::Repr {
        ident,
        ..ipv4::Repr::parse(&view)
    };
    let mut out = Vec::new();
    repr.emit(&mut out);
    out.extend_from_slice(view.payload());
    out
}

/// Returns a packet inside GRE.
pub(crate) fn gre(packet: &[u8]) -> Vec<u8> {
    let payload = [&[0, 0, 8, 0], packet].concat();
    ip(
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
        IpProto(47),
        &payload,
    )
}

/// Returns a packet inside VXLAN.
pub(crate) fn vxlan(packet: &[u8]) -> Vec<u8> {
    let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let header = [8, 0, 0, 0, 0, 0, 7, 0];
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let payload = [&header[..], &ethernet, packet].concat();
    let mut out = Vec::new();
    udp::Repr {
        src: 50_000,
        dst: 4789,
    }
    .emit(&Pseudo::V4 { src, dst }, &payload, &mut out);
    ip((src, dst), IpProto::UDP, &out)
}

/// Returns a packet inside Geneve, between these ports.
pub(crate) fn geneve(ports: (u16, u16), packet: &[u8]) -> Vec<u8> {
    let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let payload = [&[0, 0, 8, 0, 0, 0, 7, 0], packet].concat();
    let mut out = Vec::new();
    udp::Repr {
        src: ports.0,
        dst: ports.1,
    }
    .emit(&Pseudo::V4 { src, dst }, &payload, &mut out);
    ip((src, dst), IpProto::UDP, &out)
}

/// Returns a UDP datagram over IPv6 inside IPv4.
pub(crate) fn six_in_four(payload: &[u8]) -> Vec<u8> {
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut datagram = Vec::new();
    udp::Repr { src: 4000, dst: 9999 }.emit(&Pseudo::V6 { src, dst }, payload, &mut datagram);
    let header = millrace_wire::ipv6::Repr {
        src,
        dst,
        next_header: IpProto::UDP,
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        flow_label: millrace_wire::FlowLabel::from_low_bits(0),
        hop_limit: 64,
        payload_size: datagram.len() as u16,
    };
    let inner = [&header.to_bytes()[..], &datagram].concat();
    ip(
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
        IpProto(41),
        &inner,
    )
}
