//! Frames of raw IPv4 for tests, and an engine that reads them.

use millrace_ips_engine::detect::{CompileSettings, DetectSettings, Ruleset, compile};
use millrace_ips_engine::{Engine, Event, Events, Frame, LinkType, Mode, Settings};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_types::Time;

/// `LINKTYPE_RAW`: the frame begins with the IP header.
pub(crate) const RAW: LinkType = LinkType(101);

/// Compiles rules of Suricata, all of which must be accepted.
pub(crate) fn rules(text: &str, settings: &CompileSettings) -> Ruleset {
    let mut set = RuleSet::default();
    set.add(
        "test",
        files::parse(Syntax::Suricata, "test", text.as_bytes()),
        &Variables::usual(),
    );
    assert!(set.refusals().is_empty(), "{:?}", set.refusals());
    let (ruleset, refusals) = compile(&set, settings);
    assert!(refusals.is_empty(), "{refusals:?}");
    ruleset
}

/// Returns a packet from the client to the server, or back.
pub(crate) fn ipv4(protocol: u8, is_reply: bool, body: &[u8]) -> Vec<u8> {
    let size = (20 + body.len()) as u16;
    let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (source, destination) = if is_reply {
        (server, client)
    } else {
        (client, server)
    };
    let mut frame = vec![0x45, 0];
    frame.extend(size.to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(body);
    frame
}

/// Returns a datagram from port 1000 to `port`, or back.
pub(crate) fn udp(port: u16, is_reply: bool, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = if is_reply { (port, 1000) } else { (1000, port) };
    let mut body = Vec::new();
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    body.extend(((8 + payload.len()) as u16).to_be_bytes());
    body.extend([0, 0]);
    body.extend(payload);
    ipv4(17, is_reply, &body)
}

fn segment(port: u16, is_reply: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = if is_reply { (port, 1000) } else { (1000, port) };
    let mut body = Vec::new();
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    body.extend(seq.to_be_bytes());
    body.extend(ack.to_be_bytes());
    body.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    body.extend(payload);
    ipv4(6, is_reply, &body)
}

/// Returns a TCP connection to `port`: handshake, the messages (true for the server's) in segments, and its end.
pub(crate) fn tcp(port: u16, messages: &[(bool, Vec<u8>)], size: usize) -> Vec<Vec<u8>> {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const PSH: u8 = 8;
    const ACK: u8 = 16;
    let mut seq = [100u32, 500];
    let mut frames = vec![
        segment(port, false, seq[0], 0, SYN, &[]),
        segment(port, true, seq[1], seq[0] + 1, SYN | ACK, &[]),
        segment(port, false, seq[0] + 1, seq[1] + 1, ACK, &[]),
    ];
    seq = [seq[0] + 1, seq[1] + 1];
    for (is_reply, bytes) in messages {
        let (own, other) = (usize::from(*is_reply), usize::from(!*is_reply));
        for part in bytes.chunks(size.max(1)) {
            frames.push(segment(port, *is_reply, seq[own], seq[other], PSH | ACK, part));
            seq[own] += part.len() as u32;
            frames.push(segment(port, !*is_reply, seq[other], seq[own], ACK, &[]));
        }
    }
    frames.push(segment(port, false, seq[0], seq[1], FIN | ACK, &[]));
    frames.push(segment(port, true, seq[1], seq[0] + 1, FIN | ACK, &[]));
    frames.push(segment(port, false, seq[0] + 1, seq[1] + 1, ACK, &[]));
    frames
}

/// Returns the sorted numbers of the rules that raise alerts on the frames.
pub(crate) fn alerts(rules: &Ruleset, frames: &[Vec<u8>], mode: Mode) -> Vec<u32> {
    alerts_on(RAW, Time::from_millis(0), rules, frames, mode)
}

/// Returns the sorted numbers of the rules that raise alerts on the frames of a link, one each millisecond from `start`.
pub(crate) fn alerts_on(
    link: LinkType,
    start: Time,
    rules: &Ruleset,
    frames: &[Vec<u8>],
    mode: Mode,
) -> Vec<u32> {
    let settings = Settings {
        mode,
        detect: DetectSettings {
            alerts: usize::MAX,
            ..DetectSettings::default()
        },
        ..Settings::default()
    };
    let mut engine = Engine::new(settings, [1, 2]);
    let mut events = Events::default();
    for (at, bytes) in frames.iter().enumerate() {
        let frame = Frame {
            bytes: &mut bytes.clone(),
            link,
            time: Time::from_nanos(start.nanos() + at as u64 * 1_000_000),
            number: at as u64 + 1,
        };
        engine.frame(rules, frame, &mut events);
    }
    engine.finish(rules, &mut events);
    let mut sids: Vec<u32> = events
        .list
        .iter()
        .filter_map(|event| match event {
            Event::Alert(alert) => Some(alert.sid),
            _ => None,
        })
        .collect();
    sids.sort_unstable();
    sids.dedup();
    sids
}
