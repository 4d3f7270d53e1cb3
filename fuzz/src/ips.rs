//! The engine of intrusion prevention: frames, fragments, segments.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use millrace_ips_engine::app::AppSettings;
use millrace_ips_engine::detect::{CompileSettings, Ruleset, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings};
use millrace_ips_eve::{Layout, RuleTables, Version, Writer};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_testing::Schema;
use millrace_types::{Duration, Time};
use millrace_wire::ip::Pseudo;
use millrace_wire::tcp::flags::{ACK, FIN, SYN};
use millrace_wire::{Dscp, Ecn, IpProto, ipv4, tcp, udp};

/// Rules that reach every part of detection.
const RULES: &str = r#"
drop tcp-stream any any -> any any (msg:"stream"; content:"abc"; content:"xyz"; distance:0; within:20; sid:1;)
alert tcp-stream any any -> any any (msg:"anchored"; content:"GET"; depth:3; sid:2;)
alert udp any any -> any any (msg:"packet"; content:"abc"; sid:3;)
alert http any any -> any any (msg:"http"; http.uri; content:"/a"; sid:4;)
alert dns any any -> any any (msg:"dns"; dns.query; content:"a"; sid:5;)
alert ip any any -> any any (msg:"address"; ttl:<9; sid:6;)
"#;

const FLOWS: usize = 64;
const SEGMENTS: usize = 64 << 10;
const FRAGMENTS: usize = 32 << 10;
const PARSERS: usize = 256 << 10;

fn rules() -> &'static Ruleset {
    static RULESET: OnceLock<Ruleset> = OnceLock::new();
    RULESET.get_or_init(|| {
        let mut set = RuleSet::default();
        let file = files::parse(Syntax::Suricata, "fuzz", RULES.as_bytes());
        set.add("fuzz", file, &Variables::usual());
        let (rules, refusals) = compile(&set, &CompileSettings::default());
        assert!(refusals.is_empty(), "{refusals:?}");
        rules
    })
}

fn engine(mode: Mode, records: bool) -> Engine {
    let settings = Settings {
        mode,
        flows: FLOWS,
        segment_bytes: SEGMENTS,
        fragment_bytes: FRAGMENTS,
        parser_bytes: PARSERS,
        records,
        app: AppSettings {
            details: records,
            ..AppSettings::default()
        },
        ..Settings::default()
    };
    Engine::new(settings, [1, 2])
}

fn sids(events: &Events) -> BTreeSet<u32> {
    let sid = |event: &Event| match event {
        Event::Alert(alert) => Some(alert.sid),
        _ => None,
    };
    events.list.iter().filter_map(sid).collect()
}

/// Gives frames to an engine: two bytes of size, one of time, link layer and mode, and the frame, repeatedly.
///
/// Properties: no panic; flows and memory, also that of parsers, stay inside their settings, and are free after the end; a frame keeps its size.
pub(crate) fn packets(bytes: &[u8]) {
    let mut engine = engine(mode_of(bytes), false);
    let mut events = Events::default();
    let each = |engine: &Engine| {
        assert!(engine.flows() <= FLOWS);
        assert!(engine.memory() <= SEGMENTS + FRAGMENTS + 64 * 1024);
        assert!(engine.parser_memory() <= PARSERS);
    };
    give_frames(bytes, &mut engine, &mut events, each);
    engine.finish(rules(), &mut events);
    let free = (engine.flows(), engine.memory(), engine.parser_memory());
    assert_eq!(free, (0, 0, 0));
}

/// Gives frames in the same form to an engine that keeps records, and writes them as EVE.
///
/// Property: each line is a record as docs/eve.schema.json describes it.
pub(crate) fn eve(bytes: &[u8]) {
    let mut engine = engine(mode_of(bytes), true);
    let mut events = Events::default();
    give_frames(bytes, &mut engine, &mut events, |_| {});
    engine.finish(rules(), &mut events);
    let version = match bytes.first() {
        Some(first) if first & 2 != 0 => Version::Eight,
        _ => Version::Seven,
    };
    let layout = Layout {
        version,
        packets: true,
        packet_anomalies: true,
        netflow: true,
        details: true,
        ethernet: true,
    };
    let writer = Writer::new(layout, RuleTables::default().with_bits(&rules().names));
    let mut out = Vec::new();
    for event in &events.list {
        writer.write(event, Some((bytes, LinkType::RAW)), &mut out);
    }
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| Schema::parse(include_str!("../../docs/eve.schema.json")));
    for line in out.split_inclusive(|byte| *byte == b'\n') {
        let record = serde_json::from_slice(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let errors = schema.errors(&record);
        assert!(errors.is_empty(), "{record}: {errors:?}");
    }
}

fn mode_of(bytes: &[u8]) -> Mode {
    match bytes.first() {
        Some(first) if first & 1 == 1 => Mode::Ips,
        _ => Mode::Ids,
    }
}

/// Gives frames to an engine, and calls `each` after each of them.
fn give_frames(bytes: &[u8], engine: &mut Engine, events: &mut Events, each: impl Fn(&Engine)) {
    let (mut rest, mut now, mut number) = (bytes.get(1..).unwrap_or_default(), Time::from_secs(1000), 0);
    while let Some(([high, low, how], more)) = rest.split_first_chunk::<3>() {
        let size = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (frame, after) = more.split_at(size);
        rest = after;
        number += 1;
        now = now + Duration::from_secs(u64::from(how >> 4));
        let links = [
            LinkType::ETHERNET,
            LinkType::RAW,
            LinkType::LINUX_SLL,
            LinkType::PPP,
        ];
        let mut bytes = frame.to_vec();
        let frame = Frame {
            bytes: &mut bytes,
            link: LinkType(links[usize::from(how & 3)]),
            time: now,
            number,
        };
        engine.frame(rules(), frame, events);
        each(engine);
    }
}

fn ip(proto: IpProto, ident: u16, fragment: (usize, bool), payload: &[u8], from_client: bool) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (src, dst) = if from_client {
        (client, server)
    } else {
        (server, client)
    };
    let repr = ipv4::Repr {
        src,
        dst,
        proto,
        dscp: Dscp::from_low_bits(0),
        ecn: Ecn::from_low_bits(0),
        ttl: 64,
        ident,
        dont_fragment: false,
        more_fragments: fragment.1,
        fragment_offset: (fragment.0 / 8) as u16,
        options: ipv4::Options::default(),
        payload_size: payload.len() as u16,
    };
    let mut out = Vec::new();
    repr.emit(&mut out);
    out.extend_from_slice(payload);
    out
}

/// Returns the alerts of IP packets.
fn alerts(mode: Mode, packets: Vec<Vec<u8>>) -> BTreeSet<u32> {
    let mut engine = engine(mode, false);
    let mut events = Events::default();
    for (number, mut bytes) in packets.into_iter().enumerate() {
        let frame = Frame {
            bytes: &mut bytes,
            link: LinkType(LinkType::RAW),
            time: Time::from_secs(1000),
            number: number as u64 + 1,
        };
        engine.frame(rules(), frame, &mut events);
    }
    engine.finish(rules(), &mut events);
    sids(&events)
}

/// Takes a byte of choices, eight bytes of cuts, and a stream.
///
/// Property: the alerts are those of the stream in one segment, whatever its segmentation and order.
pub(crate) fn stream(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let Some((cuts, data)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let data = &data[..data.len().min(1400)];
    let mode = if choice & 1 == 1 { Mode::Ips } else { Mode::Ids };
    let mut ranges = Vec::new();
    let mut from = 0;
    for cut in cuts.iter().cycle() {
        let to = (from + 1 + usize::from(*cut)).min(data.len());
        ranges.push((from, to));
        from = to;
        if from >= data.len() {
            break;
        }
    }
    if choice & 2 != 0 {
        ranges.reverse();
    }
    if choice & 4 != 0 {
        ranges.extend_from_within(..);
    }
    let whole = alerts(mode, connection(data, &[(0, data.len())]));
    assert_eq!(alerts(mode, connection(data, &ranges)), whole);
}

/// Returns the packets of a connection whose client sends ranges of the data.
fn connection(data: &[u8], ranges: &[(usize, usize)]) -> Vec<Vec<u8>> {
    let segment = |from_client: bool, flags, seq, ack, payload: &[u8]| {
        let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (src, dst) = if from_client {
            (client, server)
        } else {
            (server, client)
        };
        let ports = if from_client { (4000, 8000) } else { (8000, 4000) };
        let repr = tcp::Repr {
            src: ports.0,
            dst: ports.1,
            seq,
            ack,
            flags,
            window: u16::MAX,
            ..tcp::Repr::default()
        };
        let mut out = Vec::new();
        repr.emit(&Pseudo::V4 { src, dst }, payload, &mut out);
        ip(IpProto::TCP, 1, (0, false), &out, from_client)
    };
    let end = 1 + data.len() as u32;
    let mut packets = vec![
        segment(true, SYN, 0, 0, &[]),
        segment(false, SYN | ACK, 0, 1, &[]),
        segment(true, ACK, 1, 1, &[]),
    ];
    packets.extend(
        ranges
            .iter()
            .map(|(from, to)| segment(true, ACK, 1 + *from as u32, 1, &data[*from..*to])),
    );
    packets.push(segment(true, ACK | FIN, end, 1, &[]));
    packets.push(segment(false, ACK, 1, end + 1, &[]));
    packets
}

/// Takes a byte of choices, one of the size of fragments, and the payload of a datagram.
///
/// Property: the alerts are those of the whole datagram, whatever its fragmentation and the order of the fragments.
pub(crate) fn fragments(bytes: &[u8]) {
    let Some(([choice, size], data)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let mode = if choice & 1 == 1 { Mode::Ips } else { Mode::Ids };
    let pseudo = Pseudo::V4 {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
    };
    let mut datagram = Vec::new();
    udp::Repr { src: 4000, dst: 53 }.emit(&pseudo, &data[..data.len().min(1400)], &mut datagram);
    let step = (usize::from(*size) % 16 + 1) * 8;
    let count = datagram.len().div_ceil(step);
    let mut packets: Vec<Vec<u8>> = datagram
        .chunks(step)
        .enumerate()
        .map(|(at, part)| ip(IpProto::UDP, 7, (at * step, at + 1 < count), part, true))
        .collect();
    if choice & 2 != 0 {
        packets.reverse();
    }
    let whole = alerts(mode, vec![ip(IpProto::UDP, 7, (0, false), &datagram, true)]);
    assert_eq!(alerts(mode, packets), whole);
}
